#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "compile/compiler.h"
#include "support/processes/channel.h"
#include <kernwright/result.h>

namespace kernwright {

struct CompileProcesses {
  std::filesystem::path program;  ///< see `find_tool`
  std::vector<std::string> arguments = {"compiler"};
  std::chrono::milliseconds deadline = compile_deadline();  ///< per compile
  /// Gets a line if compiles run on threads of this process from now on. May be empty.
  std::function<void(std::string_view)> log = {};
};

/// Makes a compiler like `here`, whose compiles run in processes: compiles in one process hold each
/// other up, and a compile cannot be ended without its process. A call takes a process that is
/// idle, or starts one.
///
/// A process that ends costs its compile, which another process does once more. One that takes
/// longer than the deadline is killed, and the compile is `timed_out`. If no process can be
/// started, all compiles run in this process. A process ends when this object is destroyed, when
/// this process ends, and when nobody has asked it for a minute. It reads no file but the toolkit's
/// and uses no GPU.
std::unique_ptr<Compiler> make_process_compiler(std::unique_ptr<Compiler> here,
                                                CompileProcesses processes);

/// Makes the same with the toolkit's compiler. If the tool (see `find_tool`) is not found, returns
/// the toolkit's compiler itself.
std::unique_ptr<Compiler> make_toolkit_compiler_in_processes(
    const std::filesystem::path& tool = {}, std::function<void(std::string_view)> log = {});

/// Starts a compile process of the tool, and ends it. Errors: why compiles run on threads of this
/// process.
Result<void> try_compile_process(const std::filesystem::path& tool = {});

/// Runs the loop of a compile process: compiles what it is told, one request at a time, until the
/// channel is closed or nobody has asked for a minute. `make` makes the compiler with the libraries
/// of an order. Errors: the errors of the channel.
Result<void> serve_compiles(Channel channel,
                            const std::function<std::unique_ptr<Compiler>(ToolkitFiles)>& make);

}  // namespace kernwright
