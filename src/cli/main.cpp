#include <functional>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/raw_ostream.h>
#include <memory>
#include <vector>

#include "cli/command.h"
#include "cli/output.h"
#include "support/text.h"
#include "support/version.h"

int main(int argc, char** argv) {
  using namespace kernwright;
  using namespace kernwright::cli;

  const std::vector<std::unique_ptr<Command> (*)()> table = {
      make_doctor, make_check, make_tune,     make_worklist, make_sweep,   make_prewarm,
      make_show,   make_cache, make_dispatch, make_worker,   make_sweeper,
  };
  std::vector<std::unique_ptr<Command>> commands;
  for (const auto& make : table) commands.push_back(make());

  llvm::cl::SetVersionPrinter([](llvm::raw_ostream& out) {
    out << "kernwright " << std::string(kernwright_version()) << " ("
        << std::string(kernwright_commit()) << ")\n";
  });
  if (!llvm::cl::ParseCommandLineOptions(argc, argv, "kernwright: tuned kernels for NVIDIA GPUs\n",
                                         &llvm::errs())) {
    return static_cast<int>(Status::usage);
  }
  for (const std::unique_ptr<Command>& command : commands) {
    if (!command->sub) continue;
    try {
      return static_cast<int>(command->run());
    } catch (const std::exception& e) {
      return static_cast<int>(
          report({ErrorCode::internal, concat("unexpected exception: ", e.what())}));
    }
  }
  llvm::cl::PrintHelpMessage(false, true);
  return static_cast<int>(Status::usage);
}
