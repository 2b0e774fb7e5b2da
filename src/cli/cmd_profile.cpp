#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include "cli/command.h"
#include "cli/counter_text.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/record_text.h"
#include "service/tune/ncu_csv.h"
#include "service/tune/profiler.h"
#include "support/files.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright::cli {
namespace {

constexpr FileKind kCsv{"CSV of ncu", std::uint64_t{256} << 20};
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
                    llvm::cl::value_desc("N"), llvm::cl::init(0), llvm::cl::sub(sub)),
        import_("import",
                llvm::cl::desc("Count nothing, and take what ncu --csv --page raw\n"
                               "printed of the winners, with --candidates also of\n"
                               "the others: kernels by name and grid, in the order\n"
                               "of the problems"),
                llvm::cl::value_desc("FILE.csv"), llvm::cl::sub(sub)) {}

  bool takes_problem() const override { return true; }

  Status run() override {
    if (candidates_ < 0) {
      return report({ErrorCode::invalid_argument,
                     concat("--candidates is ", candidates_.getValue(), ", it must be 0 or more")});
    }
    std::optional<NcuKernels> by_ncu;
    if (!import_.empty()) {
      Result<std::vector<NcuKernel>> kernels = read_csv();
      if (!kernels) return report(kernels.error());
      by_ncu.emplace(*std::move(kernels));
    } else if (std::getenv(kSetByNcu) != nullptr) {
      return report(
          {ErrorCode::unavailable,
           concat("profile runs under Nsight Compute (", kSetByNcu,
                  " is set), and two profilers cannot count at once; run it by itself, or "
                  "give what ncu printed of your program to --import")});
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
    std::vector<Result<Expected>> expected;
    for (const BoundProblem& problem : *problems) {
      if (by_ncu) expected.push_back(expect(service, problem, *by_ncu));
    }
    for (std::size_t i = 0; i < problems->size(); ++i) {
      const BoundProblem& problem = (*problems)[i];
      const Result<Profiled> profiled =
          by_ncu ? import(profiler, problem, std::move(expected[i]), *by_ncu)
                 : profiler.profile(problem, candidates_);
      if (!profiled) {
        status = report(profiled.error());
        rows.push_back({{"problem", problem.text()}, {"error", profiled.error().message}});
        // Where nothing can be counted the next problem would only say so again.
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
    if (const std::size_t unused = by_ncu ? by_ncu->unused() : 0; unused > 0) {
      report_warning(concat(unused, " of ", counted(by_ncu->size(), "kernel"), " in ",
                            import_.getValue(), unused == 1 ? " was" : " were", " not used"));
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

  Result<std::vector<NcuKernel>> read_csv() const {
    KW_ASSIGN(const std::string text, read_file(import_.getValue(), kCsv));
    Result<std::vector<NcuKernel>> kernels = parse_ncu_csv(text);
    if (kernels) return kernels;
    return Error{kernels.error().code, concat(import_.getValue(), ": ", kernels.error().message)};
  }

  /// A record whose counters ncu counted, and what is looked for in its file.
  struct Expected {
    StoredRecord stored;
    std::vector<std::size_t> candidates;  ///< by their numbers, the winner first
  };

  Result<Expected> expect(const ServiceCore& service, const BoundProblem& problem,
                          NcuKernels& kernels) const {
    Expected expected;
    KW_ASSIGN(expected.stored, find_record(service.answers(), problem));
    const TuningRecord& record = expected.stored.record;
    // A program that ncu watches launches winners, unless it was made to launch others too.
    std::vector<const RankedConfiguration*> ranked{&record.winner};
    if (candidates_ > 0) ranked = profiled_candidates(record, candidates_);
    std::vector<Candidate> candidates;
    for (const RankedConfiguration* one : ranked) {
      MissReason refused = MissReason::none;
      KW_ASSIGN(
          Candidate candidate,
          service.answers().candidate(problem, {.choice = one->choice, .artifact = {}}, refused));
      candidates.push_back(std::move(candidate));
    }
    for (const Candidate& candidate : candidates) {
      expected.candidates.push_back(kernels.expect(candidate));
    }
    return expected;
  }

  static Result<Profiled> import(const Profiler& profiler, const BoundProblem& problem,
                                 Result<Expected> expected, NcuKernels& kernels) {
    if (!expected) return expected.error();
    StoredRecord& stored = expected->stored;
    Profiled profiled;
    std::vector<CounterSet> sets;
    for (const std::size_t candidate : expected->candidates) {
      Result<CounterSet> taken = kernels.take(candidate);
      if (taken) {
        sets.push_back(*std::move(taken));
      } else if (candidate == expected->candidates.front() ||
                 taken.error().code != ErrorCode::not_found) {
        return Error{taken.error().code, concat(problem.text(), ": ", taken.error().message)};
      }
    }
    profiled.counted = static_cast<int>(sets.size());
    for (CounterSet& set : sets) add_counters(stored.record, std::move(set));
    KW_TRY(profiler.keep(stored));
    profiled.record = std::move(stored.record);
    return profiled;
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
  llvm::cl::opt<std::string> import_;
};

}  // namespace

std::unique_ptr<Command> make_profile() { return std::make_unique<Profile>(); }

}  // namespace kernwright::cli
