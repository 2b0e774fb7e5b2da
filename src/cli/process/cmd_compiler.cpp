#include "cli/command.h"
#include "cli/output.h"
#include "compile/process_compiler.h"
#include "support/processes/subprocess.h"

namespace kernwright::cli {
namespace {

class CompileServer : public Command {
 public:
  CompileServer()
      : Command("compiler", "Compile for the process that started this one (not for people)") {}

  Status run() override {
    Result<Channel> channel = inherited_channel();
    if (!channel) return report(channel.error());
    const auto make = [](ToolkitFiles files) {
      return make_toolkit_compiler(std::move(files), /*may_exit=*/false);
    };
    if (auto served = serve_compiles(*std::move(channel), make); !served) {
      return report(served.error());
    }
    return Status::ok;
  }
};

}  // namespace

std::unique_ptr<Command> make_compiler() { return std::make_unique<CompileServer>(); }

}  // namespace kernwright::cli
