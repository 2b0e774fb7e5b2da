#include "cli/tool.h"

#include <algorithm>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/raw_ostream.h>
#include <memory>
#include <new>
#include <string_view>
#include <vector>

#include "cli/command.h"
#include "cli/command_line.h"
#include "cli/output.h"
#include "support/text.h"
#include "support/version.h"
#include <kernwright/visible.h>

namespace kernwright::cli {
namespace {

constexpr std::unique_ptr<Command> (*kCommands[])() = {
    make_doctor,   make_operations, make_tune,    make_show,  make_profile, make_report,
    make_worklist, make_sweep,      make_prewarm, make_cache, make_check,   make_dispatch,
};

/// A process that the tool starts itself. It can be called by its name, but help does not list it.
struct Process {
  std::string_view name;
  std::unique_ptr<Command> (*make)();
};
constexpr Process kProcesses[] = {
    {"compiler", make_compiler}, {"worker", make_worker}, {"sweeper", make_sweeper}};

constexpr const char* kEnvironment = R"(
ENVIRONMENT:

  KERNWRIGHT_CACHE      the cache where --cache names none; without it
                        $XDG_CACHE_HOME/kernwright, or ~/.cache/kernwright
  KERNWRIGHT_CUDA_PATH  the CUDA toolkit with NVRTC and nvJitLink; without it
                        what the loader finds, $CUDA_HOME, or /usr/local/cuda
  KERNWRIGHT_COMPILE_SECONDS
                        how long one compile may take (60); more for machines
                        that others keep busy
  KERNWRIGHT_SIGNED_CACHES
                        bundles that packages bring, with colons between them,
                        which are only read; the Python package sets it

What an operation takes: kernwright operations [NAME]. Exit status: 0, 1 where
something failed, 2 where the command line is wrong, 130 after Ctrl-C.
)";

/// Prints the help, which the parser writes to a stream of its own.
Status print_help() {
  llvm::cl::PrintHelpMessage(false, true);
  llvm::outs() << kEnvironment;
  llvm::outs().flush();
  if (!llvm::outs().has_error()) return Status::ok;
  const std::string reason = llvm::outs().error().message();
  llvm::outs().clear_error();
  return report({ErrorCode::io, concat("cannot write to standard output: ", reason)});
}

Status run(const CommandLine& line, const std::vector<std::unique_ptr<Command>>& commands) {
  if (line.version) {
    print(concat("kernwright ", kernwright_version(), " (", kernwright_commit(), ")"));
    return Status::ok;
  }
  std::vector<const char*> words = {"kernwright"};
  for (const std::string& word : line.words) words.push_back(word.c_str());
  bool parsed = false;
  const auto parse = [&] {
    parsed = llvm::cl::ParseCommandLineOptions(static_cast<int>(words.size()), words.data(),
                                               "kernwright: tuned kernels for NVIDIA GPUs\n",
                                               &llvm::errs());
  };
  // The parser quotes words on standard error.
  const bool shows_all = std::ranges::all_of(
      line.words, [](const std::string& word) { return visible(word) == word; });
  if (shows_all) {
    parse();
    if (!parsed) return Status::usage;
  } else {
    const Result<std::string> said = captured_errors(parse);
    if (!said) return report(said.error());
    if (!parsed) return report({ErrorCode::invalid_argument, concat("refused: ", trim(*said))});
  }
  if (line.help) return print_help();
  for (const std::unique_ptr<Command>& command : commands) {
    if (!command->sub) continue;
    try {
      return command->run();
    } catch (const std::bad_alloc&) {
      return report(
          {ErrorCode::unavailable, "out of memory: what was asked for is too large for this host"});
    } catch (const std::exception& e) {
      return report({ErrorCode::internal, concat("unexpected exception: ", e.what())});
    }
  }
  const Status printed = print_help();
  return printed == Status::ok ? Status::usage : printed;
}

}  // namespace

int run_tool(int argc, const char* const* argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  keep_standard_descriptors();
  std::vector<std::unique_ptr<Command>> commands;
  for (const auto& make : kCommands) commands.push_back(make());
  for (const Process& process : kProcesses) {
    if (!words.empty() && words.front() == process.name) commands.push_back(process.make());
  }
  // An option that the parser's library defines for its own programs.
  if (const auto& own = llvm::cl::getRegisteredOptions(); own.count("color") != 0) {
    own.lookup("color")->setHiddenFlag(llvm::cl::Hidden);
  }
  const Result<CommandLine> line = read_command_line(std::move(words), commands);
  return static_cast<int>(close_output(line ? run(*line, commands) : report(line.error())));
}

}  // namespace kernwright::cli
