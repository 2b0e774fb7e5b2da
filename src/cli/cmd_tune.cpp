#include <cstdio>
#include <initializer_list>
#include <optional>

#include "cli/command.h"
#include "cli/family_text.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/record_text.h"
#include "service/report/unfused_report.h"
#include "support/json.h"
#include "support/mutex.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright::cli {
namespace {

Json side_json(const UnfusedReport& report, const UnfusedReport::Side& side) {
  Json json = {{"kernels", side.launches}, {"bytes", side.bytes}, {"us", side.us}};
  if (report.measured) json["max_error"] = side.max_error;
  return json;
}

Json unfused_json(const UnfusedReport& report) {
  Json steps = Json::array();
  for (const UnfusedReport::Kernel& kernel : report.kernels) {
    steps.push_back({{"problem", kernel.problem},
                     {"template", kernel.kernel_template},
                     {"configuration", kernel.configuration},
                     {"kernels", kernel.launches},
                     {"bytes", kernel.bytes},
                     {"us", kernel.us},
                     {"hardly_looked", kernel.hardly_looked}});
  }
  Json json = {{"grade", report.measured ? "measured" : "predicted"},
               {"fused", side_json(report, report.fused)},
               {"unfused", side_json(report, report.unfused)},
               {"ratio", report.ratio()}};
  json["unfused"]["steps"] = std::move(steps);
  return json;
}

void print_unfused(const Page& page, const UnfusedReport& report) {
  page.print(report.measured
                 ? "  measured in turn, each side as one graph; a step's time is its own"
                 : "  times are predicted by the cost models, nothing was measured",
             2);
  Table table({{"side"}, {"kernels", true}, {"bytes", true}, {"time", true}, {""}});
  const auto add = [&table](std::string name, int launches, std::int64_t bytes, double us,
                            std::string note) {
    table.add({std::move(name), concat(launches), format_bytes(static_cast<double>(bytes)),
               format_us(us), std::move(note)});
  };
  const auto kernel = [&](const UnfusedReport::Kernel& step) {
    return page.abridged(concat(step.problem, ": ", step.kernel_template, " ", step.configuration));
  };
  add("fused", report.fused.launches, report.fused.bytes, report.fused.us, "");
  std::string ratio = concat(significant(report.ratio(), 3), " times the fused");
  add("unfused", report.unfused.launches, report.unfused.bytes, report.unfused.us,
      std::move(ratio));
  for (const UnfusedReport::Kernel& step : report.kernels) {
    add("  step", step.launches, step.bytes, step.us, kernel(step));
  }
  page.print(table);
  const auto note = [&page](const UnfusedReport::Kernel& step) {
    if (!step.hardly_looked) return;
    page.print(
        page.abridged(concat("  ", step.problem,
                             ": its search has hardly looked, its best kernel may be faster")),
        4);
  };
  note(report.fused_kernel);
  for (const UnfusedReport::Kernel& step : report.kernels) note(step);
}

class Tune : public Command {
 public:
  Tune()
      : Command("tune", "Tune a problem or a range of sizes, or predict with --sku"),
        service_(sub),
        words_(sub),
        verbose_(sub),
        seconds_("seconds", llvm::cl::desc("Budget (default 30; 90 for a range, m=1..8192)"),
                 llvm::cl::value_desc("N"), llvm::cl::init(30), llvm::cl::sub(sub)),
        trials_("trials",
                llvm::cl::desc("Measure at most so many candidates (default\n"
                               "any); with --sku, compile them (default 4)"),
                llvm::cl::value_desc("N"), llvm::cl::init(0), llvm::cl::sub(sub)),
        strategy_("strategy",
                  llvm::cl::desc("portfolio (default), ranked, local_search, random or\n"
                                 "exhaustive"),
                  llvm::cl::value_desc("NAME"), llvm::cl::init("portfolio"), llvm::cl::sub(sub)),
        seed_("seed", llvm::cl::desc("Of inputs and search (default 1)"), llvm::cl::value_desc("N"),
              llvm::cl::init(1), llvm::cl::sub(sub)),
        unfused_("unfused",
                 llvm::cl::desc("Tune the same as separate kernels too, in half of\n"
                                "the budget, and compare: kernels, bytes, time"),
                 llvm::cl::sub(sub)),
        trial_log_("trial-log",
                   llvm::cl::desc("Where trials are appended; default: a file in the\n"
                                  "cache, which begins anew"),
                   llvm::cl::value_desc("FILE"), llvm::cl::sub(sub)) {}

  bool takes_problem() const override { return true; }

  Status run() override {
    Result<Problem> problem = words_.parse(service_);
    if (!problem) return report(problem.error());
    if (Result<void> fits = check_options(*problem); !fits) return report(fits.error());
    Result<std::shared_ptr<ServiceCore>> opened = service_.open();
    if (!opened) return report(opened.error());
    ServiceCore& service = **opened;
    if (Result<void> fits = check_prediction(service); !fits) return report(fits.error());
    end_on_interrupt(
        service.has_device()
            ? "no record was made. Kept are compiled winners of before, what failed, which is not "
              "tried again, and the log of trials. The same command starts the search anew"
            : "no record was made. The same command starts anew");
    if (has_range(*problem)) return tune_family(service, *problem);
    if (unfused_) return compare(service, *problem);
    const Result<TuningResult> result = [&] {
      SearchWatch watch;
      const std::optional<Ticker> ticker = show(watch);
      return tune_or_predict(service, *problem, options(seconds_), watch);
    }();
    if (!result) return report(result.error());
    if (json) {
      print_json(judged_json(*result, service));
    } else {
      print_result(verbose_.page(), *result, service);
    }
    return kept(result->unstored);
  }

 private:
  /// Returns a line of progress, unless data are printed.
  std::optional<Ticker> show(const SearchWatch& watch) const {
    if (json) return std::nullopt;
    return std::optional<Ticker>(std::in_place, [&watch] { return watch.line(); });
  }

  static Json judged_json(const TuningResult& result, const ServiceCore& service) {
    Json object = result_json(result);
    if (const Result<ReportRow> row = judge(result.record, service)) add_judgement(object, *row);
    return object;
  }

  /// Reports a result that could not be stored, and fails: no later process would find it.
  static Status kept(const std::string& unstored) {
    if (unstored.empty()) return Status::ok;
    return report({ErrorCode::io, concat("the record was not written: ", unstored)});
  }

  TuningOptions options(double seconds) const {
    TuningOptions options{.budget = {.seconds = seconds},
                          .strategy = strategy_,
                          .random_seed = seed_,
                          .trial_log = trial_log_.getValue()};
    if (trials_ > 0) options.budget.trials = trials_;
    return options;
  }

  Status tune_family(ServiceCore& service, const Problem& problem) const {
    FamilyOptions options;
    options.seconds = seconds_.getNumOccurrences() > 0 ? seconds_.getValue() : options.seconds;
    options.random_seed = seed_;
    Mutex mutex;
    std::string line;
    options.progress = [&](const FamilyProgress& progress) {
      const MutexLock lock(mutex);
      line = concat(problem.operation(), ": ", progress.stage, ", ", progress.done, " of ",
                    progress.of, ", ", counted(progress.kernels, "kernel"), ", ",
                    format_duration(progress.seconds));
    };
    const Result<TunedFamily> tuned = [&] {
      std::optional<Ticker> ticker;
      if (!json) {
        ticker.emplace([&] {
          const MutexLock lock(mutex);
          return line;
        });
      }
      return service.tune_family(problem, std::move(options));
    }();
    if (!tuned) return report(tuned.error());
    if (json) {
      print_json(parse_value(to_json(tuned->record)));
    } else {
      print_family(verbose_.page(), tuned->record.head);
    }
    return kept(tuned->unstored);
  }

  Status compare(ServiceCore& service, const Problem& problem) const {
    std::optional<TuningResult> fused;  // the fused problem's result, which comes first
    std::string unstored;
    SearchWatch watch;
    std::optional<Ticker> ticker = show(watch);
    const auto tune = [&](const Problem& each, double seconds) -> Result<TuningRecord> {
      KW_ASSIGN(TuningResult result, tune_or_predict(service, each, options(seconds), watch));
      TuningRecord record = result.record;
      if (unstored.empty()) unstored = result.unstored;
      if (!fused) fused = std::move(result);
      return record;
    };
    const Result<UnfusedReport> compared = report_unfused(service, problem, tune, seconds_, seed_);
    ticker.reset();
    if (!compared) return report(compared.error());
    if (json) {
      Json all = judged_json(*fused, service);
      all["unfused"] = unfused_json(*compared);
      print_json(all);
    } else {
      const Page page = verbose_.page();
      print_result(page, *fused, service);
      print_unfused(page, *compared);
    }
    return kept(unstored);
  }

  /// Checks options early. Without a measuring search nothing else would check them.
  Result<void> check_options(const Problem& problem) const {
    const std::initializer_list<const llvm::cl::Option*> of_one_size = {&trials_, &strategy_,
                                                                        &unfused_, &trial_log_};
    for (const llvm::cl::Option* option : of_one_size) {
      if (!has_range(problem) || option->getNumOccurrences() == 0) continue;
      return Error{ErrorCode::invalid_argument,
                   concat("--", option->ArgStr.str(), " is of a search for one size, and ",
                          problem.text(), " has a range")};
    }
    if (trials_.getNumOccurrences() > 0 && trials_ < 1) {
      return Error{ErrorCode::invalid_argument,
                   concat("--trials is ", trials_.getValue(), ", it must be 1 or more")};
    }
    KW_TRY(check_strategy(strategy_.getValue()));
    return check_budget(seconds_);
  }

  /// Refuses options of a measuring search if nothing is measured.
  Result<void> check_prediction(const ServiceCore& service) const {
    if (service.has_device()) return {};
    const std::initializer_list<const llvm::cl::Option*> of_searches = {&strategy_, &seed_,
                                                                        &trial_log_};
    for (const llvm::cl::Option* option : of_searches) {
      if (option->getNumOccurrences() == 0) continue;
      return Error{ErrorCode::invalid_argument,
                   concat("--", option->ArgStr.str(), " is of a search that measures; for the sku ",
                          service.profile().id,
                          " without a GPU there is none, a prediction takes "
                          "--seconds and --trials")};
    }
    return {};
  }

  ServiceFlags service_;
  ProblemWords words_;
  VerboseFlag verbose_;
  llvm::cl::opt<double> seconds_;
  llvm::cl::opt<int> trials_;
  llvm::cl::opt<std::string> strategy_;
  llvm::cl::opt<std::uint64_t> seed_;
  llvm::cl::opt<bool> unfused_;
  llvm::cl::opt<std::string> trial_log_;
};

}  // namespace

std::unique_ptr<Command> make_tune() { return std::make_unique<Tune>(); }

}  // namespace kernwright::cli
