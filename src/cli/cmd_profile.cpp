#include <cstdlib>
#include <filesystem>
#include <set>
#include <utility>

#include "cache/records/record_view.h"
#include "cli/command.h"
#include "cli/counter_text.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/record_text.h"
#include "service/tune/profiler.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright::cli {
namespace {

/// ncu sets it for the processes that it starts. Counting did not end there in 20 s (2025.3).
constexpr const char* kSetByNcu = "NV_COMPUTE_PROFILER_PERFWORKS_DIR";

class Profile : public Command {
 public:
  Profile()
      : Command("profile", "Count what a record's kernels do to the hardware"),
        service_(sub),
        words_(sub),
        verbose_(sub),
        candidates_("candidates",
                    llvm::cl::desc("Count so many runners-up besides the winner and the\n"
                                   "default (default 0)"),
                    llvm::cl::value_desc("N"), llvm::cl::init(0), llvm::cl::sub(sub)) {}

  bool takes_problem() const override { return true; }

  Status run() override {
    if (candidates_ < 0) {
      return report({ErrorCode::invalid_argument,
                     concat("--candidates is ", candidates_.getValue(), ", it must be 0 or more")});
    }
    if (std::getenv(kSetByNcu) != nullptr) {
      return report({ErrorCode::unavailable,
                     concat("profile runs under Nsight Compute (", kSetByNcu,
                            " is set), and two profilers cannot count at once; run it by itself")});
    }
    const Result<std::vector<WorklistEntry>> entries = read_entries();
    if (!entries) return report(entries.error());
    Result<std::shared_ptr<ServiceCore>> opened = service_.open();
    if (!opened) return report(opened.error());
    ServiceCore& service = **opened;
    const Result<std::vector<BoundProblem>> problems = bound(*entries, service);
    if (!problems) return report(problems.error());
    end_on_interrupt("the counters of earlier problems are kept; the same command starts anew");

    Profiler profiler(service.site(), service.builder(), service.answers(),
                      {service_.templates.begin(), service_.templates.end()});
    Json rows = Json::array();
    Status status = Status::ok;
    for (const BoundProblem& problem : *problems) {
      const Result<Profiled> profiled = profiler.profile(problem, candidates_);
      if (!profiled) {
        status = report(profiled.error());
        rows.push_back({{"problem", problem.text()}, {"error", profiled.error().message}});
        // If nothing can be counted, the next problem would only report the same.
        if (profiled.error().code == ErrorCode::unavailable) break;
        continue;
      }
      if (json) {
        rows.push_back({{"problem", problem.text()},
                        {"counted", profiled->counted},
                        {"seconds", profiled->seconds},
                        {"notes", profiled->notes},
                        {"counters", counters_json(profiled->record, service)}});
      } else {
        print_profiled(service, *profiled);
      }
    }
    if (json) print_json(Json{{"sku", service.profile().id}, {"problems", std::move(rows)}});
    return status;
  }

 private:
  bool has_worklist() const {
    return words_.words.size() == 1 && words_.words.front().ends_with(".json");
  }

  Result<std::vector<WorklistEntry>> read_entries() const {
    if (has_worklist()) return read_worklist(words_.words.front());
    KW_ASSIGN(Problem problem, words_.parse(service_));
    return std::vector{WorklistEntry{.problem = std::move(problem)}};
  }

  Result<std::vector<BoundProblem>> bound(const std::vector<WorklistEntry>& entries,
                                          const ServiceCore& service) const {
    std::vector<BoundProblem> problems;
    std::set<std::string> known;
    for (const WorklistEntry& entry : entries) {
      Result<BoundProblem> bound = service.bind(entry.problem);
      if (!bound) {
        const std::string where =
            has_worklist() ? concat(words_.words.front(), ":", entry.line, ": ") : std::string();
        return Error{bound.error().code, concat(where, bound.error().message)};
      }
      if (known.insert(bound->text()).second) problems.push_back(*std::move(bound));
    }
    return problems;
  }

  void print_profiled(const ServiceCore& service, const Profiled& profiled) const {
    const Page page = verbose_.page();
    const TuningRecord& record = profiled.record;
    page.print(page.abridged(record.key.problem), 2);
    const Result<ReportRow> row = judge(record, service);
    page.print("winner", concat(format_us(winner_us(record)),
                                record.grade == RecordGrade::measured ? "" : " predicted",
                                row ? concat(", ", bound_text(*row)) : std::string()));
    page.print("", record.winner.choice.id());
    print_counters(page, record, service);
    for (const std::string& note : profiled.notes) page.print("note", note);
  }

  ServiceFlags service_;
  ProblemWords words_;
  VerboseFlag verbose_;
  llvm::cl::opt<int> candidates_;
};

}  // namespace

std::unique_ptr<Command> make_profile() { return std::make_unique<Profile>(); }

}  // namespace kernwright::cli
