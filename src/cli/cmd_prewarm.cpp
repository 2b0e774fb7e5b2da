#include <chrono>

#include "cli/command.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "model/result/match_names.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright::cli {
namespace {

// Processes that prewarm one cache do not serve yet, so waiting for another one's compile pays.
constexpr std::chrono::seconds kPatience{30};

class Prewarm : public Command {
 public:
  Prewarm()
      : Command("prewarm", "Compile what a worklist needs and is not in the cache"),
        service_(sub),
        worklist_(sub),
        verbose_(sub),
        min_match_("min-match",
                   llvm::cl::desc("The worst match that will do: exact, family,\n"
                                  "recheck, seed, bucket, predicted (default); with\n"
                                  "any, nothing worse is compiled"),
                   llvm::cl::value_desc("MATCH"), llvm::cl::sub(sub)),
        verify_("verify", llvm::cl::desc("Compile nothing; list what is missing, exit 1 if any"),
                llvm::cl::sub(sub)) {}

  Status run() override {
    const Result<std::vector<WorklistEntry>> entries = worklist_.read();
    if (!entries) return report(entries.error());
    ServiceOptions options = service_.options();
    if (!min_match_.empty()) {
      const std::optional<Match> least = parse_as<Match>(min_match_.getValue());
      if (!least) {
        return report({ErrorCode::invalid_argument,
                       concat("--min-match is \"", min_match_.getValue(), "\", no match")});
      }
      options.min_match = *least;
    }
    Result<std::shared_ptr<ServiceCore>> opened =
        ServiceCore::open(std::move(options), {.patience = kPatience, .shortlists = false});
    if (!opened) return report(opened.error());
    const std::shared_ptr<ServiceCore> service = *std::move(opened);
    const Result<std::vector<Problem>> problems = worklist_.normalize(*entries, *service);
    if (!problems) return report(problems.error());

    const Page page = verbose_.page();
    end_on_interrupt("what was compiled is kept; the same command goes on with the rest");
    Json rows = Json::array();
    int missing = 0;
    const auto add_row = [&](const std::string& problem, const Coverage& covered,
                             const std::string& failure) {
      const bool lacks = covered.match == Match::none || !failure.empty();
      if (lacks) ++missing;
      Json row = {{"problem", problem},
                  {"match", to_string(covered.match)},
                  {"reason", to_string(covered.reason)}};
      if (!failure.empty()) row["error"] = failure;
      rows.push_back(std::move(row));
      if (json) return;
      page.print(lacks ? "missing" : "ready",
                 page.abridged(concat(problem, "  ", to_string(covered.match),
                                      covered.reason == MissReason::none
                                          ? std::string()
                                          : concat(" (", to_string(covered.reason), ")"),
                                      failure.empty() ? std::string() : concat(": ", failure))));
    };
    for (const Problem& problem : *problems) {
      if (has_range(problem)) {
        const RangedProblem family = *service->site().bind_family(problem);
        const Result<void> made =
            verify_ ? Result<void>() : make_family(service->min_match(), problem);
        Coverage covered = service->coverage(family);
        // Each program predicts a range that has no record.
        if (!verify_ && made && covered.match == Match::none) covered.match = Match::predicted;
        add_row(family.text(), covered, made ? std::string() : made.error().message);
        continue;
      }
      Coverage covered = service->coverage(problem);
      std::string failure;
      if (covered.match == Match::none && !verify_) {
        if (Result<Kernel> kernel = service->get_best_kernel(problem); !kernel) {
          failure = kernel.error().message;
        }
        covered = service->coverage(problem);
      }
      if (covered.match != Match::none && service->has_device() && !verify_) {
        if (Result<void> launched = service->canary(problem); !launched) {
          failure = "canary: " + launched.error().message;
        }
      }
      add_row(problem.text(), covered, failure);
    }
    if (json) {
      print_json(Json{{"sku", service->profile().id},
                      {"problems", problems->size()},
                      {"missing", missing},
                      {"compiled", service->builder().pool().compiled()},
                      {"coverage", rows}});
    } else {
      print(concat(missing, " of ", counted(problems->size(), "problem"),
                   missing == 1 ? " is" : " are", " missing"));
    }
    return missing == 0 ? Status::ok : Status::failed;
  }

 private:
  /// Makes the bits of the kernels of a range by a service that serves ranges.
  Result<void> make_family(Match min_match, const Problem& family) const {
    ServiceOptions options = service_.options();
    options.min_match = min_match;
    KW_ASSIGN(const std::shared_ptr<ServiceCore> serves, ServiceCore::open(std::move(options)));
    return serves->prewarm_family(family);
  }

  ServiceFlags service_;
  WorklistFile worklist_;
  VerboseFlag verbose_;
  llvm::cl::opt<std::string> min_match_;
  llvm::cl::opt<bool> verify_;
};

}  // namespace

std::unique_ptr<Command> make_prewarm() { return std::make_unique<Prewarm>(); }

}  // namespace kernwright::cli
