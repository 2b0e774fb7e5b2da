#include "compile/process_compiler.h"

#include <atomic>
#include <csignal>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "compile/compile_pool.h"
#include "support/files.h"
#include "support/processes/subprocess.h"
#include "support/text.h"
#include "tests/results.h"
#include "tests/temp_dir.h"

namespace kernwright {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;
using namespace std::chrono_literals;

fs::path beside_this(const char* name) {
  return fs::read_symlink("/proc/self/exe").parent_path() / name;
}

/// The compiler of this process: its results say where it ran.
class Here final : public Compiler {
 public:
  Result<std::string> identity() override { return std::string("here 1.0"); }
  ToolkitFiles files(const CompileRequest&) override { return libraries; }
  Result<CompiledKernel> compile(const CompileRequest& request) override {
    CompiledKernel kernel;
    kernel.bits = concat("here: ", request.source);
    return kernel;
  }
  Result<CompiledKernel> link(const std::vector<std::string>&, const std::string&) override {
    return Error{ErrorCode::unavailable, "does not link"};
  }

  ToolkitFiles libraries = {"/nvrtc", "/nvjitlink"};
};

CompileRequest request_of(std::string source) {
  CompileRequest request;
  request.name = "a.cu";
  request.target = "sm_90a";
  request.source = std::move(source);
  return request;
}

bool is_gone(pid_t pid) {
  for (int i = 0; i < 60'000; ++i) {
    if (::kill(pid, 0) != 0) return true;
    const auto status = read_file(concat("/proc/", pid, "/stat"));
    if (status && status->find(") Z ") != std::string::npos) return true;
    ::usleep(1000);
  }
  return false;
}

pid_t pid_in(const fs::path& file) {
  while (!fs::exists(file)) ::usleep(1000);
  return std::stoi(read_file(file).value());
}

class ProcessCompilerTest : public testing::Test {
 protected:
  void make(std::vector<std::string> arguments = {}, std::chrono::milliseconds deadline = 60s,
            fs::path program = beside_this("kernwright_fake_compiler")) {
    auto here = std::make_unique<Here>();
    here_ = here.get();
    CompileProcesses processes;
    processes.program = std::move(program);
    processes.arguments = std::move(arguments);
    processes.deadline = deadline;
    processes.log = [this](std::string_view line) { logged_.emplace_back(line); };
    compiler_ = make_process_compiler(std::move(here), std::move(processes));
  }
  Result<CompiledKernel> compile(std::string source) {
    return compiler_->compile(request_of(std::move(source)));
  }
  std::string bits(std::string source) {
    const Result<CompiledKernel> kernel = compile(std::move(source));
    return kernel ? kernel->bits : kernel.error().message;
  }

  ScopedTempDir directory_;
  std::vector<std::string> logged_;
  Here* here_ = nullptr;
  std::unique_ptr<Compiler> compiler_;
};

TEST_F(ProcessCompilerTest, CompilesRunInAProcessThatIsKept) {
  make();
  EXPECT_EQ(bits("a"), "a");
  const std::string pid = bits("pid");
  EXPECT_NE(pid, std::to_string(::getpid()));
  EXPECT_EQ(bits("pid"), pid) << "an idle process was there";
  EXPECT_TRUE(logged_.empty());
}

TEST_F(ProcessCompilerTest, AProcessGetsTheLibrariesOfThisOne) {
  make();
  EXPECT_EQ(bits("libraries"), "/nvrtc /nvjitlink");
}

TEST_F(ProcessCompilerTest, AProcessInheritsNoDescriptors) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);  // not closed on exec
  make();
  const std::string files = bits("files");
  EXPECT_THAT(files, HasSubstr("socket:"));
  EXPECT_THAT(files, Not(HasSubstr("pipe:")));
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_F(ProcessCompilerTest, WhatTheCompilerSaysIsTheAnswer) {
  make();
  EXPECT_THAT(compile("refuse"), Fails(ErrorCode::compile, "line 3: nonsense"));
  EXPECT_THAT(compile("throw"), Fails(ErrorCode::internal, "a.cu: out of luck"));
}

TEST_F(ProcessCompilerTest, WhatEndsItsProcessIsCompiledOnceMore) {
  make();
  const std::string first = bits("pid");
  const std::string source = concat("exit once ", (directory_ / "file").native());
  EXPECT_EQ(bits(source), source);
  EXPECT_NE(bits("pid"), first);
  EXPECT_TRUE(is_gone(std::stoi(first)));
}

TEST_F(ProcessCompilerTest, WhatEndsItsProcessTwiceIsAnError) {
  make();
  EXPECT_THAT(compile("exit"),
              Fails(ErrorCode::compile, "a.cu: the compile process ended, exit status 7, twice"));
  EXPECT_EQ(bits("a"), "a");
  EXPECT_TRUE(logged_.empty());
}

TEST_F(ProcessCompilerTest, AProcessThatEndedIdleIsReplaced) {
  make();
  const std::string first = bits("pid");
  ASSERT_EQ(::kill(std::stoi(first), SIGKILL), 0);
  EXPECT_NE(bits("pid"), first);
}

TEST_F(ProcessCompilerTest, WhatHangsIsKilled) {
  const fs::path file = directory_ / "pid";
  // On a machine that others keep busy a process may take long to start.
  for (const std::chrono::milliseconds deadline : {2s, 8s, 32s, 128s}) {
    make({}, deadline);
    EXPECT_THAT(compile(concat("hang ", file.native())),
                Fails(ErrorCode::timed_out,
                      concat("a.cu: compile for sm_90a ended after ", deadline.count(),
                             " ms; a larger KERNWRIGHT_COMPILE_SECONDS allows more")));
    const Result<CompiledKernel> next = compile("a");
    if (!fs::exists(file) || !next) continue;
    EXPECT_TRUE(is_gone(pid_in(file)));
    EXPECT_EQ(next->bits, "a");
    return;
  }
  FAIL() << "no process started within 128 s";
}

TEST_F(ProcessCompilerTest, WithoutTheToolThisProcessCompilesAndSaysSoOnce) {
  make({}, 60s, "/nowhere/at/all");
  EXPECT_EQ(bits("a"), "here: a");
  EXPECT_EQ(bits("b"), "here: b");
  ASSERT_EQ(logged_.size(), 1U);
  EXPECT_THAT(logged_[0], HasSubstr("compiles run on threads of this process: "));
  EXPECT_THAT(logged_[0], HasSubstr("cannot start /nowhere/at/all"));
}

TEST_F(ProcessCompilerTest, AProgramOfAnotherBuildIsNotAsked) {
  for (const auto& [argument, reason] : {std::pair("stranger", "it is not of this build"),
                                         std::pair("exit", "it did not start: exit status 3")}) {
    logged_.clear();
    make({argument});
    EXPECT_EQ(bits("a"), "here: a") << argument;
    ASSERT_EQ(logged_.size(), 1U) << argument;
    EXPECT_THAT(logged_[0], HasSubstr(reason));
  }
}

TEST_F(ProcessCompilerTest, AProcessEndsWithItsCompiler) {
  make();
  const pid_t pid = std::stoi(bits("pid"));
  compiler_.reset();
  EXPECT_TRUE(is_gone(pid));
}

TEST_F(ProcessCompilerTest, ACompileThatIsStoppedEndsWithItsProcess) {
  make();
  const fs::path file = directory_ / "pid";
  Result<CompiledKernel> stopped = CompiledKernel();
  std::thread waits([&] { stopped = compile(concat("hang ", file.native())); });
  const pid_t pid = pid_in(file);
  compiler_->stop();
  waits.join();
  EXPECT_THAT(stopped, Fails(ErrorCode::unavailable, "a.cu: the compile was stopped"));
  EXPECT_TRUE(is_gone(pid));
  EXPECT_EQ(bits("a"), "a.cu: the compile was stopped");
}

TEST_F(ProcessCompilerTest, AProcessEndsWithItsParent) {
  const fs::path file = directory_ / "pid";
  auto parent = must(
      Subprocess::spawn({beside_this("kernwright_fake_compiler"), {"parent", file.native()}, {}}));
  const pid_t pid = pid_in(file);
  EXPECT_EQ(::kill(pid, 0), 0);
  ASSERT_EQ(::kill(parent.pid(), SIGKILL), 0);  // the process alone: the other has its own group
  EXPECT_TRUE(is_gone(pid));
}

TEST_F(ProcessCompilerTest, APoolOfManyThreadsCompilesInAsManyProcesses) {
  make();
  CompilePool pool(std::shared_ptr<Compiler>(std::move(compiler_)), {.threads = 4});
  std::vector<Build> builds;
  for (int i = 0; i < 100; ++i) builds.push_back(pool.submit(request_of(std::to_string(i))));
  for (int i = 0; i < 100; ++i) {
    const CompileResult result = builds[static_cast<std::size_t>(i)].get();
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_EQ((*result)->bits, std::to_string(i));
  }
}

using ProcessCompilerToolkitTest = ProcessCompilerTest;

TEST_F(ProcessCompilerToolkitTest, AProcessCompilesTheSameBits) {
  const std::unique_ptr<Compiler> toolkit = make_toolkit_compiler();
  make({"compiler"}, 60s, beside_this("kernwright"));
  here_->libraries = toolkit->files(request_of(""));
  CompileRequest request = request_of(R"(
#include "own.h"
extern "C" __global__ void scale(float* x) { x[threadIdx.x] *= kFactor; })");
  request.headers = {{"own.h", "constexpr float kFactor = 2;"}};
  request.options = {"--use_fast_math"};
  const CompiledKernel other = must(compiler_->compile(request));
  const CompiledKernel own = must(toolkit->compile(request));
  EXPECT_EQ(other.bits, own.bits);
  ASSERT_EQ(other.entries.size(), 1U);
  EXPECT_EQ(other.entries[0].name, "scale");
  EXPECT_EQ(other.resources(), own.resources());
  EXPECT_TRUE(logged_.empty());
}

}  // namespace
}  // namespace kernwright
