#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <thread>

#include "cli/command.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/record_text.h"
#include "cli/sweep/sweep_printer.h"
#include "cli/sweep/sweeper.h"
#include "service/report/report_file.h"
#include "service/report/sweep_report.h"
#include "service/sweep/run_sweep.h"
#include "service/sweep/sweep_plan.h"
#include "service/sweep/worklist.h"
#include "support/json.h"
#include "support/processes/threads.h"
#include "support/steady_seconds.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright::cli {
namespace {

class Sweep : public Command {
 public:
  Sweep()
      : Command("sweep", "Tune what of a worklist has no good enough record"),
        service_(sub),
        worklist_(sub),
        verbose_(sub),
        seconds_("seconds", llvm::cl::desc("Budget per problem (default 30; 90 for a range)"),
                 llvm::cl::value_desc("N"), llvm::cl::init(30), llvm::cl::sub(sub)),
        devices_("devices", llvm::cl::desc("GPUs that share the problems, e.g. 0,1,2,3"),
                 llvm::cl::value_desc("N,N,..."), llvm::cl::CommaSeparated, llvm::cl::sub(sub)),
        shard_("shard", llvm::cl::desc("Only part I of N of the problems, e.g. 2/8"),
               llvm::cl::value_desc("I/N"), llvm::cl::init("1/1"), llvm::cl::sub(sub)),
        recheck_("recheck",
                 llvm::cl::desc("Tune again what was measured with another driver or\nkernwright"),
                 llvm::cl::sub(sub)),
        dry_run_("dry-run", llvm::cl::desc("Say what would be done, and how long it takes"),
                 llvm::cl::sub(sub)) {}

  Status run() override {
    if (Result<void> fits = check_budget(seconds_); !fits) return report(fits.error());
    Result<Shard> shard = parse_shard(shard_.getValue());
    if (!shard) return report(shard.error());
    const Result<std::vector<WorklistEntry>> entries = worklist_.read();
    if (!entries) return report(entries.error());
    // The processes start while this one examines the GPUs.
    std::vector<SweepTuner> tuners;
    if (devices().size() > 1 && !dry_run_) tuners = start_sweepers();
    Result<std::vector<std::shared_ptr<ServiceCore>>> services = open_services();
    if (!services) return report(services.error());
    const ServiceCore& first = *services->front();
    // All problems are normalised before the first is tuned, so that a mistake shows at once.
    Result<std::vector<Problem>> named = worklist_.normalize(*entries, first);
    if (!named) return report(named.error());
    std::vector<Problem> normalized = *std::move(named);
    if (shard->count > 1) normalized = shard_of(std::move(normalized), *shard);
    std::vector<Problem> families;
    std::erase_if(normalized, [&](const Problem& problem) {
      if (!has_range(problem)) return false;
      families.push_back(problem);
      return true;
    });
    if (dry_run_) return print_plan(first, normalized, families);

    SearchWatch watch;
    if (tuners.empty()) tuners = {tuner_here(services->front(), watch)};
    end_on_interrupt("records made so far are kept; the same command goes on with the rest");
    Json rows = Json::array();
    const Status status = sweep_families(first, families, tuners, rows);
    if (normalized.empty() && !json) return status;
    const auto report_failure = [&](std::size_t index, const SweepResult& result, double) {
      if (result.record) return;
      report({ErrorCode::internal, concat(normalized[index].text(), ": ", result.error)});
    };
    const std::vector<SweepResult> results =
        json ? run_sweep(normalized, tuners, report_failure, report_warning)
             : run_and_print(first, normalized, tuners, watch, verbose_.page());
    return std::max(status, print_report(first, normalized, results, std::move(rows)));
  }

 private:
  static std::string bound_of(const FamilyRegret& regret) {
    if (regret.sizes == 0) return "measured at no other sizes";
    return concat("within ", format_share(regret.p95), " of the best found");
  }
  static std::string canonical(const ServiceCore& service, const Problem& family) {
    return service.site().bind_family(family)->text();
  }

  /// Sweeps the problems with ranges, and prints how each ended.
  Status sweep_families(const ServiceCore& service, const std::vector<Problem>& families,
                        std::span<const SweepTuner> tuners, Json& rows) const {
    Status status = Status::ok;
    const auto tell = [&](std::size_t index, const SweepResult& result, double) {
      const std::string error =
          result.unstored.empty() ? result.error : concat("not stored: ", result.unstored);
      if (!error.empty()) status = Status::failed;
      if (json) return;
      print(concat(!error.empty() ? "failed   "
                   : result.found ? "settled  "
                                  : "tuned    ",
                   canonical(service, families[index]),
                   error.empty() ? concat(": ", counted(result.family->kernels.size(), "kernel"),
                                          ", ", bound_of(result.family->regret))
                                 : concat(": ", error)));
    };
    const std::vector<SweepResult> results = run_sweep(families, tuners, tell, report_warning);
    for (std::size_t i = 0; i < families.size(); ++i) {
      rows.push_back(results[i].family ? parse_value(to_json(*results[i].family))
                                       : Json{{"problem", canonical(service, families[i])},
                                              {"place", worklist_.place(families[i])},
                                              {"error", results[i].error}});
    }
    return status;
  }

  /// Opens one service for each GPU. A single one tunes in this process.
  Result<std::vector<std::shared_ptr<ServiceCore>>> open_services() const {
    std::vector<std::shared_ptr<ServiceCore>> services;
    const std::vector<int> devices = this->devices();
    for (const int device : devices) {
      if (std::count(devices.begin(), devices.end(), device) > 1) {
        return Error{ErrorCode::invalid_argument, concat("--devices names ", device, " twice")};
      }
      ServiceOptions options = service_.options();
      options.device = device;
      KW_ASSIGN(std::shared_ptr<ServiceCore> opened, ServiceCore::open(std::move(options)));
      services.push_back(std::move(opened));
      const std::string& sku = services.front()->profile().id;
      if (services.back()->profile().id != sku) {
        return Error{ErrorCode::invalid_argument,
                     concat("GPU ", device, " is a ", services.back()->profile().id, ", GPU ",
                            devices.front(), " a ", sku, ": a sweep is of one SKU")};
      }
    }
    return services;
  }

  std::vector<int> devices() const {
    if (devices_.empty()) return {service_.device};
    return {devices_.begin(), devices_.end()};
  }

  SweepSettings settings() const { return sweep_settings(seconds_, recheck_); }

  SweepTuner tuner_here(std::shared_ptr<ServiceCore> service, SearchWatch& watch) const {
    return [service = std::move(service), &watch, settings = settings()](
               const Problem& problem, std::span<const Problem> later) {
      if (has_range(problem)) return sweep_family(*service, problem, settings);
      Thread ahead;  // which ends before this returns
      return sweep_problem(
          *service, problem, settings, [&](const Problem& missing, TuningOptions options) {
            options.screened = [&] {
              Result<Thread> started =
                  Thread::start([&] { compile_for_next(*service, later, settings); });
              if (started) ahead = *std::move(started);
            };
            return tune_or_predict(*service, missing, std::move(options), watch);
          });
    };
  }

  std::vector<SweepTuner> start_sweepers() const {
    // Their compile pools share the cores.
    const int cores = static_cast<int>(std::thread::hardware_concurrency());
    const int threads = std::max(1, (cores - 2) / static_cast<int>(devices().size()));
    std::vector<SweepTuner> tuners;
    for (const int device : devices()) {
      std::vector<std::string> arguments = service_.arguments(device);
      arguments.insert(arguments.begin(), "sweeper");
      if (settings().seconds) arguments.push_back(concat("--seconds=", *settings().seconds));
      arguments.push_back(concat("--compile-threads=", threads));
      if (recheck_) arguments.emplace_back("--recheck");
      const auto sweeper = std::make_shared<Sweeper>(std::move(arguments));
      tuners.emplace_back([sweeper](const Problem& problem, std::span<const Problem>) {
        return sweeper->sweep(problem);
      });
    }
    return tuners;
  }

  Status print_plan(const ServiceCore& service, const std::vector<Problem>& problems,
                    const std::vector<Problem>& families) const {
    Json of_families = Json::array();
    double family_seconds = 0;
    std::size_t families_due = 0;
    for (const Problem& family : families) {
      const bool due = !settled_family(service, family, recheck_);
      of_families.push_back({{"problem", canonical(service, family)}, {"due", due}});
      if (due) ++families_due;
      if (due) family_seconds += settings().seconds.value_or(FamilyOptions().seconds);
      if (!json) print(concat(due ? "due      " : "settled  ", canonical(service, family)));
    }
    family_seconds /= static_cast<double>(devices().size());
    const SweepPlan plan = [&] {
      ProgressLine line;
      const auto start = std::chrono::steady_clock::now();
      return plan_sweep(service, problems, recheck_, [&](std::size_t planned) {
        if (json) return;
        const double seconds = seconds_since(start);
        const auto left = static_cast<double>(problems.size() - planned);
        line.update(concat(planned, " of ", counted(problems.size(), "problem"), " planned, about ",
                           format_duration(seconds / static_cast<double>(planned) * left), " left"),
                    seconds);
      });
    }();
    // The sweep would fail for the same problems.
    const Status status = plan.impossible() == 0 ? Status::ok : Status::failed;
    const double seconds =
        family_seconds + plan.seconds(seconds_, static_cast<int>(devices().size()));
    if (json) {
      Json rows = Json::array();
      for (const SweepPlan::Row& row : plan.rows) {
        rows.push_back({{"problem", row.problem.text()},
                        {"due", row.due},
                        {"candidates", row.candidates},
                        {"compiles", row.compiles}});
        if (row.impossible.empty()) continue;
        rows.back()["place"] = worklist_.place(row.problem);
        rows.back()["error"] = row.impossible;
      }
      print_json(Json{{"sku", service.profile().id},
                      {"problems", plan.rows.size()},
                      {"due", plan.due()},
                      {"impossible", plan.impossible()},
                      {"candidates", plan.candidates()},
                      {"compiles", plan.compiles()},
                      {"seconds", seconds},
                      {"families", std::move(of_families)},
                      {"plan", rows}});
      return status;
    }
    const Page page = verbose_.page();
    const std::string at_most =
        seconds == 0 ? std::string() : concat("; at most about ", format_duration(seconds));
    if (!families.empty()) {
      page.print(concat(families_due, " of ", counted(families.size(), "range"),
                        families_due == 1 ? " is" : " are", " due for ", service.profile().id,
                        service.has_device() ? "" : ", which only a GPU can measure",
                        problems.empty() ? at_most : std::string()));
    }
    if (problems.empty() && !families.empty()) return status;
    Table table({{"state"}, {"candidates", true}, {"compiles", true}, {"problem"}});
    for (const SweepPlan::Row& row : plan.rows) {
      const bool counted = row.due && row.impossible.empty();
      table.add({!row.impossible.empty() ? "impossible"
                 : row.due               ? "due"
                                         : "settled",
                 counted ? concat(row.candidates) : "", counted ? concat(row.compiles) : "",
                 page.abridged(row.impossible.empty()
                                   ? row.problem.text()
                                   : concat(worklist_.place(row.problem), ": ", row.impossible))});
    }
    page.print(table);
    page.print(
        concat(plan.due(), " of ", counted(plan.rows.size(), "problem"),
               plan.due() == 1 ? " is" : " are", " due for ", service.profile().id, ": ",
               counted(plan.candidates(), "candidate"), ", ", counted(plan.compiles(), "compile"),
               service.has_device() ? "" : ", of which a prediction makes the best few", at_most,
               plan.impossible() == 0
                   ? ""
                   : concat("; ", counted(plan.impossible(), "is impossible", "are impossible"))));
    return status;
  }

  Status print_report(const ServiceCore& service, const std::vector<Problem>& problems,
                      const std::vector<SweepResult>& results, Json families) const {
    std::size_t failed = 0;
    Json records = Json::array();
    std::vector<ReportRow> rows;
    const Page page = verbose_.page();
    Table failures({{"failed"}});
    for (std::size_t i = 0; i < problems.size(); ++i) {
      const std::string problem = problems[i].text();
      const SweepResult& result = results[i];
      if (!result.record) {
        ++failed;
        const std::string place = worklist_.place(problems[i]);
        records.push_back({{"problem", problem}, {"place", place}, {"error", result.error}});
        failures.add({page.abridged(concat(place, ": ", problem, ": ", result.error))});
        continue;
      }
      if (!result.unstored.empty()) ++failed;
      const Result<BoundProblem> bound = service.bind(problems[i]);
      if (!bound) return report(bound.error());
      rows.push_back(report_row(*result.record, &*bound, service.profile()));
      Json object = record_json(*result.record);
      add_judgement(object, rows.back());
      if (result.tuned_again) object["tuned_again"] = true;
      if (!result.unstored.empty()) object["error"] = concat("not stored: ", result.unstored);
      records.push_back(std::move(object));
    }
    const Status status = failed == 0 ? Status::ok : Status::failed;
    const std::string written = write_page(service, problems);
    if (json) {
      print_json(Json{{"sku", service.profile().id},
                      {"grade", service.has_device() ? "measured" : "predicted"},
                      {"problems", problems.size()},
                      {"failed", failed},
                      {"records", records},
                      {"families", std::move(families)},
                      {"report", written.empty() ? Json() : Json(written)}});
      return status;
    }
    if (rows.size() < problems.size()) page.print(failures);
    const std::size_t have = problems.size() - failed;
    print(concat(have, " of ", counted(problems.size(), "problem"), have == 1 ? " has" : " have",
                 " a record for ", service.profile().id,
                 service.has_device() ? "" : ", by prediction: no GPU was used"));
    print_summary(page, rows);
    if (!written.empty()) page.print("report", written);
    return status;
  }

  /// Prints how much faster the winners are than the defaults, how sure they are, and what to do
  /// next.
  static void print_summary(const Page& page, const std::vector<ReportRow>& rows) {
    double logs = 0;
    int compared = 0;
    int faster = 0;
    std::map<Support, int> supports;
    std::map<std::string, int> steps;
    for (const ReportRow& row : rows) {
      ++supports[row.support];
      if (!row.next.action.empty()) ++steps[row.next.action];
      const Speedup* speedup = over_default(row);
      if (speedup == nullptr && row.support != Support::default_kept) continue;
      ++compared;
      if (speedup == nullptr) continue;
      logs += std::log(speedup->times);
      if (speedup->low > 1) ++faster;
    }
    if (compared > 0) {
      page.print("speed-up", concat(fixed(std::exp(logs / compared), 2),
                                    " times the defaults, the geometric mean; ", faster, " of ",
                                    compared, faster == 1 ? " is" : " are", " clearly faster"));
    }
    std::string sure;
    for (const auto& [support, count] : supports) {
      sure += concat(sure.empty() ? "" : ", ", count, " ", to_string(support));
    }
    if (!sure.empty()) page.print("sure", sure);
    std::string_view label = "next";
    for (const auto& [action, count] : steps) {
      page.print(label, concat(counted(count, "problem"), ": ", action));
      label = "";
    }
  }

  /// Writes the records of the problems as a page beside the cache's, and returns its path. If that
  /// fails, warns and returns an empty path.
  std::string write_page(const ServiceCore& service, const std::vector<Problem>& problems) const {
    if (problems.empty()) return {};
    const std::filesystem::path worklist = worklist_.path.getValue();
    std::string name = concat(worklist.stem().string(), "-", service.profile().id);
    if (shard_ != "1/1") name += concat("-", shard_.getValue());
    std::replace(name.begin(), name.end(), '/', '-');
    const ServiceOptions options = service_.options();
    const Result<ReportFile> written =
        write_report({.inputs = {.paths = {},
                                 .problems = problems,
                                 .cache = service.cache().root(),
                                 .read_only_caches = {options.read_only_caches.begin(),
                                                      options.read_only_caches.end()},
                                 .sku = service.profile().id},
                      .title = worklist.filename().string(),
                      .template_dirs = {options.template_dirs.begin(), options.template_dirs.end()},
                      .epilogues = {options.epilogues.begin(), options.epilogues.end()},
                      .output = service.cache().root() / "reports" / (name + ".html")});
    if (written) return written->file.string();
    report_warning(concat("no report: ", written.error().message));
    return {};
  }

  ServiceFlags service_;
  WorklistFile worklist_;
  VerboseFlag verbose_;
  llvm::cl::opt<double> seconds_;
  llvm::cl::list<int> devices_;
  llvm::cl::opt<std::string> shard_;
  llvm::cl::opt<bool> recheck_;
  llvm::cl::opt<bool> dry_run_;
};

}  // namespace

std::unique_ptr<Command> make_sweep() { return std::make_unique<Sweep>(); }

}  // namespace kernwright::cli
