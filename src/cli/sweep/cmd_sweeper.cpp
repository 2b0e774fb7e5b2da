#include <mutex>
#include <utility>

#include "cache/fields/field_writer.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/sweep/sweeper.h"
#include "service/sweep/sweep_problem.h"
#include "support/processes/subprocess.h"

namespace kernwright::cli {
namespace {

class SweeperCommand : public Command {
 public:
  SweeperCommand()
      : Command("sweeper", "Tune for the sweep that started this process (not for people)"),
        service_(sub),
        seconds_("seconds", llvm::cl::desc("Budget per problem"), llvm::cl::init(30),
                 llvm::cl::sub(sub)),
        recheck_("recheck", llvm::cl::desc("Tune again what another environment measured"),
                 llvm::cl::sub(sub)),
        compile_threads_("compile-threads", llvm::cl::desc("Compiles that run at once"),
                         llvm::cl::init(0), llvm::cl::sub(sub)) {}

  Status run() override {
    Result<Channel> channel = inherited_channel();
    if (!channel) return report(channel.error());
    std::mutex mutex;  // guards sending on the channel: any thread may warn
    const auto send = [&](std::string_view line) {
      const std::lock_guard lock(mutex);
      return channel->send(line);
    };
    ServiceOptions options = service_.options();
    options.compile_threads = compile_threads_;
    options.log = [&send](LogLevel level, std::string_view message) {
      if (level != LogLevel::warning) return;
      FieldWriter warning;
      warning.field("warning", message);
      static_cast<void>(send(warning.text()));  // if that fails there is nobody to warn
    };
    const Result<std::shared_ptr<ServiceCore>> service = ServiceCore::open(std::move(options));
    if (!service) return report(service.error());
    SearchWatch watch;
    const SweepSettings settings = sweep_settings(seconds_, recheck_);
    for (;;) {
      const Result<Message> request = channel->receive();
      if (!request) return report(request.error());
      const Result<Problem> problem = Problem::parse(request->text);
      if (!problem) return report(problem.error());
      const SweepResult result =
          has_range(*problem) ? sweep_family(**service, *problem, settings)
                              : sweep_problem(**service, *problem, settings,
                                              [&](const Problem& missing, TuningOptions tuning) {
                                                return tune_or_predict(**service, missing,
                                                                       std::move(tuning), watch);
                                              });
      if (auto sent = send(to_json(result)); !sent) return report(sent.error());
    }
  }

 private:
  ServiceFlags service_;
  llvm::cl::opt<double> seconds_;
  llvm::cl::opt<bool> recheck_;
  llvm::cl::opt<int> compile_threads_;
};

}  // namespace

std::unique_ptr<Command> make_sweeper() { return std::make_unique<SweeperCommand>(); }

}  // namespace kernwright::cli
