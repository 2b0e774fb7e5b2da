#include "cli/command.h"
#include "cli/output.h"
#include "support/text.h"
#include "tuner/search_strategy.h"

namespace kernwright::cli {
namespace {

class Tune : public Command {
 public:
  Tune()
      : Command("tune", "Tune one problem, or predict with --sku, and store the record"),
        service_(sub),
        words_(sub),
        seconds_("seconds", llvm::cl::desc("Budget, default 30"), llvm::cl::init(30),
                 llvm::cl::sub(sub)),
        trials_("trials", llvm::cl::desc("Measure at most this many candidates"), llvm::cl::init(0),
                llvm::cl::sub(sub)),
        strategy_("strategy",
                  llvm::cl::desc("portfolio (default), ranked, local_search, random or\n"
                                 "exhaustive"),
                  llvm::cl::init("portfolio"), llvm::cl::sub(sub)),
        seed_("seed", llvm::cl::desc("Of inputs and search, default 1"), llvm::cl::init(1),
              llvm::cl::sub(sub)),
        trial_log_("trial-log", llvm::cl::desc("Where trials are appended; default: in the cache"),
                   llvm::cl::value_desc("FILE"), llvm::cl::sub(sub)) {}

  Status run() override {
    Result<Problem> problem = words_.parse();
    if (!problem) return report(problem.error());
    if (Result<void> fits = check_options(); !fits) return report(fits.error());
    Result<std::shared_ptr<ServiceCore>> opened = service_.open();
    if (!opened) return report(opened.error());
    const std::shared_ptr<ServiceCore> service = *std::move(opened);
    TuningOptions options;
    options.budget.seconds = seconds_;
    if (trials_ > 0) options.budget.trials = trials_;
    options.strategy = strategy_;
    options.seed = seed_;
    options.trial_log = trial_log_.getValue();
    Result<TuningResult> result = tune_or_predict(*service, *problem, std::move(options), json);
    if (!result) return report(result.error());
    if (json) {
      print_json(result_json(*result));
    } else {
      print_result(*result, service->profile());
    }
    return Status::ok;
  }

 private:
  /// What only the search would notice, or, where nothing is measured, nobody.
  Result<void> check_options() const {
    if (trials_.getNumOccurrences() > 0 && trials_ < 1) {
      return Error{ErrorCode::invalid_argument,
                   concat("--trials is ", trials_.getValue(), ", it must be 1 or more")};
    }
    std::string known;
    for (const std::string_view name : strategy_names()) {
      if (strategy_ == name) return check_budget(seconds_);
      known += concat(known.empty() ? "" : ", ", name);
    }
    return Error{ErrorCode::invalid_argument,
                 concat("no strategy \"", strategy_.getValue(), "\", there are ", known)};
  }

  ServiceFlags service_;
  ProblemWords words_;
  llvm::cl::opt<double> seconds_;
  llvm::cl::opt<int> trials_;
  llvm::cl::opt<std::string> strategy_;
  llvm::cl::opt<std::uint64_t> seed_;
  llvm::cl::opt<std::string> trial_log_;
};

}  // namespace

std::unique_ptr<Command> make_tune() { return std::make_unique<Tune>(); }

}  // namespace kernwright::cli
