#include <optional>

#include "cache/fields/tree_writer.h"
#include "cli/command.h"
#include "cli/output.h"
#include "service/serve/dispatch.h"
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
          {"paths", tree_of(dispatch.paths.times)},
          {"best_path", tree_of(dispatch.paths.best)},
          {"recorded_best_path", tree_of(dispatch.kernel.best_path)},
          {"hooks", std::move(hooks)}};
}

void print_dispatch(const Page& page, const Dispatch& dispatch) {
  page.print(page.abridged(dispatch.kernel.problem), 2);
  page.print("kernel", dispatch.kernel.kernel_template);
  page.print("", dispatch.kernel.configuration);
  Table parts({{"part"}, {"time", true}, {"of"}});
  parts.add(
      {"lookup", format_us(dispatch.lookup_us), "get_best_kernel of a problem asked for before"});
  parts.add({"packing", format_us(dispatch.packing_us), "checking and packing the arguments"});
  parts.add({"driver", format_us(dispatch.driver_us), "cuLaunchKernelEx"});
  parts.add({"gap", format_us(dispatch.gap_us),
             "an empty kernel of the same geometry, as a graph's node"});
  parts.add({"kernel", format_us(dispatch.kernel_us), "beyond that, with the L2 warm"});
  page.print(parts);
  const std::optional<KernelPath>& recorded = dispatch.kernel.best_path;
  Table paths({{"path"}, {"host", true}, {"back to back", true}, {""}});
  for (const PathTime& time : dispatch.paths.times) {
    const bool best = time.path == dispatch.paths.best;
    const bool was_best = time.path == recorded;
    paths.add({std::string(to_string(time.path)), format_us(time.host_us),
               format_us(time.period_us),
               concat(best ? "best" : "", best && was_best ? ", " : "",
                      was_best ? "best when it was tuned" : "")});
  }
  page.print(paths);
  if (!recorded) page.print("  no best path is recorded", 2);
  for (const AuditRow& hook : dispatch.hooks) {
    page.print(concat("  distorted by ", hook.check, ": ", hook.detail), 4);
  }
  if (dispatch.hooks.empty()) page.print("  no profiling hooks in this process", 2);
}

class DispatchCommand : public Command {
 public:
  DispatchCommand()
      : Command("dispatch", "Show where the time of one launch goes, on each path"),
        service_(sub),
        words_(sub),
        verbose_(sub) {}

  bool takes_problem() const override { return true; }

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
      print_dispatch(verbose_.page(), *dispatch);
    }
    return Status::ok;
  }

 private:
  ServiceFlags service_;
  ProblemWords words_;
  VerboseFlag verbose_;
};

}  // namespace

std::unique_ptr<Command> make_dispatch() { return std::make_unique<DispatchCommand>(); }

}  // namespace kernwright::cli
