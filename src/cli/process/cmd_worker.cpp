#include "cli/command.h"
#include "cli/output.h"
#include "service/tune/measuring.h"
#include "support/processes/subprocess.h"

namespace kernwright::cli {
namespace {

class MeasuringWorker : public Command {
 public:
  MeasuringWorker()
      : Command("worker", "Measure for the tuning process that started this one (not for people)") {
  }

  Status run() override {
    Result<Channel> channel = inherited_channel();
    if (!channel) return report(channel.error());
    if (auto served = serve_as_worker(*std::move(channel)); !served) return report(served.error());
    return Status::ok;
  }
};

}  // namespace

std::unique_ptr<Command> make_worker() { return std::make_unique<MeasuringWorker>(); }

}  // namespace kernwright::cli
