#include <algorithm>

#include "cli/command.h"
#include "cli/output.h"
#include "service/dispatch.h"
#include "support/text.h"

namespace kernwright::cli {
namespace {

Json dispatch_json(const Dispatch& dispatch) {
  Json hooks = Json::array();
  for (const AuditRow& row : dispatch.hooks) {
    hooks.push_back({{"check", row.check}, {"detail", row.detail}});
  }
  return {{"problem", dispatch.kernel.problem},
          {"template", dispatch.kernel.kernel_template},
          {"configuration", dispatch.kernel.configuration},
          {"match", to_string(dispatch.kernel.match)},
          {"lookup_us", dispatch.lookup_us},
          {"packing_us", dispatch.packing_us},
          {"driver_us", dispatch.driver_us},
          {"gap_us", dispatch.gap_us},
          {"kernel_us", dispatch.kernel_us},
          {"paths", paths_json(dispatch.paths)},
          {"best_path", path_json(dispatch.paths.best)},
          {"recorded_best_path", path_json(dispatch.kernel.best_path)},
          {"hooks", std::move(hooks)}};
}

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(text.size(), width), ' ');
  return text;
}

void print_dispatch(const Dispatch& dispatch) {
  print(concat(dispatch.kernel.problem, ": ", dispatch.kernel.kernel_template, " ",
               dispatch.kernel.configuration));
  const auto row = [](const char* name, double us, const char* what) {
    print(concat("  ", padded(name, 10), padded(format_us(us), 12), what));
  };
  row("lookup", dispatch.lookup_us, "get_best_kernel of a problem asked for before");
  row("packing", dispatch.packing_us, "checking and packing the arguments");
  row("driver", dispatch.driver_us, "cuLaunchKernelEx");
  row("gap", dispatch.gap_us, "an empty kernel of the same geometry, as a graph's node");
  row("kernel", dispatch.kernel_us, "beyond that, with the L2 warm");
  print(concat("  ", padded("path", 10), padded("host", 12), "period back to back"));
  const std::optional<KernelPath>& recorded = dispatch.kernel.best_path;
  for (const PathTime& time : dispatch.paths.times) {
    const bool best = time.path == dispatch.paths.best;
    const bool was_best = time.path == recorded;
    print(concat("  ", padded(std::string(to_string(time.path)), 10),
                 padded(format_us(time.host_us), 12), padded(format_us(time.period_us), 12),
                 best ? "best" : "", best && was_best ? ", " : "",
                 was_best ? "best when it was tuned" : ""));
  }
  if (!recorded) print("  no best path is recorded");
  for (const AuditRow& hook : dispatch.hooks) {
    print(concat("  distorted by ", hook.check, ": ", hook.detail));
  }
  if (dispatch.hooks.empty()) print("  no profiling hooks in this process");
}

class DispatchCommand : public Command {
 public:
  DispatchCommand()
      : Command("dispatch", "Show where the time of one launch goes, on each launch path"),
        service_(sub),
        words_(sub) {}

  Status run() override {
    Result<Problem> problem = words_.parse(service_);
    if (!problem) return report(problem.error());
    Result<std::shared_ptr<ServiceCore>> service = service_.open();
    if (!service) return report(service.error());
    const Result<Dispatch> dispatch = measure_dispatch(**service, *problem);
    if (!dispatch) return report(dispatch.error());
    if (json) {
      print_json(dispatch_json(*dispatch));
    } else {
      print_dispatch(*dispatch);
    }
    return Status::ok;
  }

 private:
  ServiceFlags service_;
  ProblemWords words_;
};

}  // namespace

std::unique_ptr<Command> make_dispatch() { return std::make_unique<DispatchCommand>(); }

}  // namespace kernwright::cli
