#pragma once

#include <array>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <iterator>
#include <map>
#include <pty.h>
#include <sstream>
#include <string>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <nlohmann/json.hpp>

#include "compile/compiler.h"
#include "device/cuda/cuda_device.h"
#include "support/files.h"
#include "tests/temp_dir.h"

namespace kernwright {

/// The results of a program. `exit_code` is -1 if it did not end by itself.
struct Ran {
  int exit_code = -1;
  std::string out;
  std::string err;

  nlohmann::json json() const {
    nlohmann::json parsed = nlohmann::json::parse(out, nullptr, false);
    EXPECT_FALSE(parsed.is_discarded()) << out << err;
    return parsed;
  }
};

/// Fails for each line of `text` that is wider than `columns`.
inline void expect_width(const std::string& text, std::size_t columns) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), columns) << line;
  }
}

/// Returns the words of `text` with a space between them, however it is laid out.
inline std::string flat(const std::string& text) {
  std::istringstream words(text);
  std::string line;
  for (std::string word; words >> word;) line += (line.empty() ? "" : " ") + word;
  return line;
}

/// Returns the folder of this test program, in which the tool and the examples are as well.
inline std::filesystem::path program_folder() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path();
}

/// Runs programs from the test's folder, in an environment of their own: a cache and a home that
/// are empty when the test starts.
class ProgramTest : public ::testing::Test {
 protected:
  Ran run(const std::string& program, std::vector<std::string> arguments) {
    return start(program_folder() / program, std::move(arguments));
  }
  Ran kernwright(std::vector<std::string> arguments) {
    return run("kernwright", std::move(arguments));
  }
  /// A line of a shell, with the tool found by its name.
  Ran shell(const std::string& line) { return start("/bin/sh", {"-c", line}); }

  Ran start(const std::filesystem::path& program, std::vector<std::string> arguments) {
    const std::filesystem::path out = dir_ / "stdout";
    const std::filesystem::path err = dir_ / "stderr";
    arguments.insert(arguments.begin(), program.string());
    std::vector<char*> words;
    for (std::string& argument : arguments) words.push_back(argument.data());
    words.push_back(nullptr);
    const pid_t child = ::fork();
    if (child == 0) {
      for (const auto& [name, value] : environment_) ::setenv(name.c_str(), value.c_str(), 1);
      redirect(out, STDOUT_FILENO);
      redirect(err, STDERR_FILENO);
      ::execv(words[0], words.data());
      ::_exit(127);
    }
    Ran ran;
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status)) ran.exit_code = WEXITSTATUS(status);
    ran.out = content(out);
    ran.err = content(err);
    return ran;
  }

  /// Runs a program on a terminal of `columns` columns. Whenever something is shown, `seen` gets
  /// all that was shown so far, and what it returns is typed.
  Ran on_terminal(std::vector<std::string> arguments, unsigned short columns,
                  const std::function<std::string(const std::string&)>& seen = nullptr) {
    const std::filesystem::path program = program_folder() / "kernwright";
    arguments.insert(arguments.begin(), program.string());
    std::vector<char*> words;
    for (std::string& argument : arguments) words.push_back(argument.data());
    words.push_back(nullptr);
    winsize size{};
    size.ws_row = 24;
    size.ws_col = columns;
    int terminal = -1;
    const pid_t child = ::forkpty(&terminal, nullptr, nullptr, &size);
    if (child == 0) {
      for (const auto& [name, value] : environment_) ::setenv(name.c_str(), value.c_str(), 1);
      ::execv(words[0], words.data());
      ::_exit(127);
    }
    Ran ran;
    std::array<char, 4096> buffer{};
    // A terminal whose other side is closed returns an error.
    for (ssize_t got = 0; (got = ::read(terminal, buffer.data(), buffer.size())) > 0;) {
      ran.out.append(buffer.data(), static_cast<std::size_t>(got));
      const std::string typed = seen ? seen(ran.out) : "";
      EXPECT_EQ(::write(terminal, typed.data(), typed.size()), static_cast<ssize_t>(typed.size()));
    }
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    ::close(terminal);
    if (WIFEXITED(status)) ran.exit_code = WEXITSTATUS(status);
    return ran;
  }

  std::filesystem::path write(const std::string& name, std::string_view text) {
    const std::filesystem::path path = dir_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  static std::string content(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::filesystem::path cache() const { return dir_ / "cache"; }
  std::filesystem::path home() const { return dir_ / "home"; }

  ScopedTempDir dir_;
  std::map<std::string, std::string> environment_{
      {"KERNWRIGHT_CACHE", (dir_ / "cache").string()},
      {"HOME", (dir_ / "home").string()},
      {"PATH", program_folder().string() + ":/usr/bin:/bin"},
  };

 private:
  static void redirect(const std::filesystem::path& path, int descriptor) {
    const int file = ::open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    if (file < 0 || ::dup2(file, descriptor) < 0) ::_exit(126);
  }
};

/// Skips with the reason if there is no NVRTC.
class ToolkitProgramTest : public ProgramTest {
 protected:
  void SetUp() override {
    if (const Result<std::string> toolkit = make_toolkit_compiler()->identity(); !toolkit) {
      GTEST_SKIP() << toolkit.error().message;
    }
  }
};

/// Skips with the reason if there is no GPU or no NVRTC.
class GpuProgramTest : public ToolkitProgramTest {
 protected:
  void SetUp() override {
    if (const Result<int> count = cuda_device_count(); !count) {
      GTEST_SKIP() << count.error().message;
    }
    ToolkitProgramTest::SetUp();
  }
};

}  // namespace kernwright
