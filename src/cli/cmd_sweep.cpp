#include "cli/command.h"
#include "cli/output.h"
#include "service/sweep_state.h"
#include "support/text.h"

namespace kernwright::cli {
namespace {

class Sweep : public Command {
 public:
  Sweep()
      : Command("sweep",
                "Tune every problem of a worklist that has no record yet, or one of trust C"),
        service_(sub),
        worklist_(sub),
        seconds_("seconds", llvm::cl::desc("Budget per problem, default 30"), llvm::cl::init(30),
                 llvm::cl::sub(sub)) {}

  Status run() override {
    if (Result<void> fits = check_budget(seconds_); !fits) return report(fits.error());
    Result<std::vector<Problem>> problems = worklist_.read();
    if (!problems) return report(problems.error());
    Result<std::shared_ptr<ServiceCore>> opened = service_.open();
    if (!opened) return report(opened.error());
    const std::shared_ptr<ServiceCore> service = *std::move(opened);
    // Every problem is named before the first is tuned: a mistake shows at once.
    for (const Problem& problem : *problems) {
      if (Result<ServiceCore::Named> named = service->name(problem); !named) {
        return report(named.error());
      }
    }
    Json rows = Json::array();
    int failed = 0;
    for (const Problem& problem : *problems) {
      if (!sweep_one(*service, problem, rows)) ++failed;
    }
    if (json) {
      print_json(Json{{"sku", service->profile().id},
                      {"grade", service->has_device() ? "measured" : "predicted"},
                      {"problems", problems->size()},
                      {"failed", failed},
                      {"records", rows}});
    } else {
      print(concat(problems->size() - static_cast<std::size_t>(failed), " of ", problems->size(),
                   " problems have a record for ", service->profile().id,
                   service->has_device() ? "" : ", by prediction: no GPU was used"));
    }
    return failed == 0 ? Status::ok : Status::failed;
  }

 private:
  bool sweep_one(ServiceCore& service, const Problem& problem, Json& rows) const {
    const RecordGrade wanted =
        service.has_device() ? RecordGrade::measured : RecordGrade::predicted;
    const Result<ServiceCore::Named> named = service.name(problem);
    MissReason reason = MissReason::none;
    const std::vector<GradedRecord> known = service.records(named->problem, reason);
    const SweepState state = sweep_state(known, wanted);
    if (state.settled != nullptr) {
      show(*state.settled, "already in the cache", rows);
      return true;
    }
    TuningOptions options;
    options.budget.seconds = seconds_;
    Result<TuningResult> result = tune_or_predict(service, problem, std::move(options), json);
    if (!result) {
      report(result.error());
      rows.push_back({{"problem", named->problem.text()}, {"error", result.error().message}});
      return false;
    }
    show(result->record, state.provisional ? "tuned again: the record had trust C" : "", rows);
    if (state.provisional) rows.back()["tuned_again"] = true;
    return true;
  }

  void show(const TuningRecord& record, std::string_view note, Json& rows) const {
    rows.push_back(record_json(record));
    if (json) return;
    print(concat(winner_line(record), note.empty() ? "" : concat("  (", note, ")")));
  }

  ServiceFlags service_;
  WorklistFile worklist_;
  llvm::cl::opt<double> seconds_;
};

}  // namespace

std::unique_ptr<Command> make_sweep() { return std::make_unique<Sweep>(); }

}  // namespace kernwright::cli
