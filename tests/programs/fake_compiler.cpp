// A compile process without a toolkit, for tests. What it makes of a request is what its source
// says:
//
//   pid              its process id
//   files            what its descriptors are, a line each
//   libraries        the libraries of the order
//   refuse           an error of the compiler
//   throw            an exception
//   exit             none, it exits with status 7
//   exit once FILE   the same where there is no FILE yet, which it makes
//   hang FILE        none; its process id is in FILE
//   anything else    the source itself
//
// With the argument `stranger` it speaks another protocol, and with `exit` it exits at once. With
// `parent FILE` it is no compile process: it starts one that hangs, and waits for it.
#include <chrono>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "compile/process_compiler.h"
#include "support/files.h"
#include "support/processes/subprocess.h"
#include "support/text.h"

namespace kernwright {
namespace {

[[noreturn]] void hang() {
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

std::string open_files() {
  std::string files;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    files += concat(std::filesystem::read_symlink(entry, gone).native(), '\n');
  }
  return files;
}

class FakeCompiler final : public Compiler {
 public:
  explicit FakeCompiler(ToolkitFiles files) : files_(std::move(files)) {}

  Result<std::string> identity() override { return std::string("fake 1.0"); }
  Result<CompiledKernel> compile(const CompileRequest& request) override {
    const std::string& source = request.source;
    CompiledKernel kernel;
    kernel.bits = source;
    if (source == "pid") kernel.bits = std::to_string(::getpid());
    if (source == "files") kernel.bits = open_files();
    if (source == "libraries") kernel.bits = concat(files_.nvrtc, ' ', files_.nvjitlink);
    if (source == "refuse") return Error{ErrorCode::compile, "line 3: nonsense"};
    if (source == "throw") throw std::runtime_error("out of luck");
    if (source == "exit") ::_exit(7);
    if (source.starts_with("exit once ")) {
      const std::string file = source.substr(10);
      if (!std::filesystem::exists(file) && publish_file(file, "")) ::_exit(7);
    }
    if (source.starts_with("hang ") && publish_file(source.substr(5), concat(::getpid()))) hang();
    return kernel;
  }
  Result<CompiledKernel> link(const std::vector<std::string>&, const std::string&) override {
    return Error{ErrorCode::unavailable, "the fake compiler does not link"};
  }

 private:
  ToolkitFiles files_;
};

/// The compiler of a process whose own compiles never end.
class Busy final : public Compiler {
 public:
  Result<std::string> identity() override { return std::string("busy 1.0"); }
  Result<CompiledKernel> compile(const CompileRequest&) override { hang(); }
  Result<CompiledKernel> link(const std::vector<std::string>&, const std::string&) override {
    hang();
  }
};

int run_parent(const char* program, const std::string& file) {
  CompileProcesses processes;
  processes.program = program;
  const auto compiler = make_process_compiler(std::make_unique<Busy>(), std::move(processes));
  CompileRequest request;
  request.source = concat("hang ", file);
  static_cast<void>(compiler->compile(request));
  return 1;
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.size() == 3 && arguments[1] == "parent") {
    return run_parent(arguments[0].c_str(), arguments[2]);
  }
  if (arguments.size() == 2 && arguments[1] == "exit") return 3;
  Result<Channel> channel = inherited_channel();
  if (!channel) return 1;
  if (arguments.size() == 2 && arguments[1] == "stranger") {
    return channel->send("a stranger's greeting") && channel->receive() ? 0 : 1;
  }
  return serve_compiles(
             *std::move(channel),
             [](ToolkitFiles files) { return std::make_unique<FakeCompiler>(std::move(files)); })
             ? 0
             : 1;
}

}  // namespace
}  // namespace kernwright

int main(int argc, char** argv) { return kernwright::run({argv, argv + argc}); }
