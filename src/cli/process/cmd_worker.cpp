#include "cli/command.h"
#include "cli/output.h"
#include "support/processes/subprocess.h"
#include "tuner/worker/serve.h"

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
    const std::unique_ptr<RunnerFactory> factory = make_device_runner_factory();
    if (auto served = serve_runner(*std::move(channel), *factory); !served) {
      return report(served.error());
    }
    return Status::ok;
  }
};

}  // namespace

std::unique_ptr<Command> make_worker() { return std::make_unique<MeasuringWorker>(); }

}  // namespace kernwright::cli
