#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>

#include "cli/command.h"
#include "cli/counter_text.h"
#include "cli/output.h"
#include "cli/record_text.h"
#include "service/report/report_file.h"
#include "support/json.h"
#include "support/text.h"

namespace kernwright::cli {
namespace {

/// If a runner-up is served, because it is pinned or the winner is banned, puts it first and
/// returns the candidate that it replaces. Empty otherwise.
std::string put_first(TuningRecord& record, const std::string& served) {
  std::string measured = record.winner.choice.id();
  const auto found =
      std::find_if(record.runners_up.begin(), record.runners_up.end(),
                   [&](const RankedConfiguration& ranked) { return ranked.choice.id() == served; });
  if (measured == served || found == record.runners_up.end()) return {};
  std::swap(record.winner, *found);
  std::rotate(record.runners_up.begin(), found, found + 1);
  record.launch_paths = {};  // they were measured for the replaced one
  return measured;
}

std::string said(const Override& made) {
  return concat(made.choice.id(), made.why.empty() ? "" : ": ", made.why);
}

/// The root of the layer that has the file.
std::filesystem::path layer_of(const std::string& file, const TieredCache& cache) {
  for (const std::filesystem::path& root : cache.roots()) {
    if (file.starts_with(root.string() + "/v1/")) return root;
  }
  return cache.root();
}

class Show : public Command {
 public:
  Show()
      : Command("show", "Show the record of a problem with its evidence"),
        service_(sub),
        words_(sub),
        verbose_(sub),
        html_("html", llvm::cl::desc("Also write a page to look at, like report"),
              llvm::cl::value_desc("FILE"), llvm::cl::sub(sub)) {}

  bool takes_problem() const override { return true; }

  Status run() override {
    Result<Problem> problem = words_.parse(service_);
    if (!problem) return report(problem.error());
    Result<std::shared_ptr<ServiceCore>> opened = service_.open();
    if (!opened) return report(opened.error());
    const std::shared_ptr<ServiceCore> service = *std::move(opened);
    const Result<BoundProblem> bound = service->bind(*problem);
    if (!bound) return report(bound.error());
    const Answers answers = service->answers().look_up(*bound);
    const std::vector<GradedRecord>& records = answers.records;
    if (records.empty()) {
      return report(
          {ErrorCode::not_found, concat("no record for ", bound->text(), " on ",
                                        service->profile().id, ": ", to_string(answers.reason))});
    }
    const GradedRecord& best = records.front();
    if (best.file.empty()) {
      return report({ErrorCode::not_found,
                     concat(best.head.winner.choice.id(), " is pinned, and no record knows it")});
    }
    const Lookup<TuningRecord> read = read_record(best.file);
    if (!read) {
      return report({ErrorCode::corrupt, concat(to_string(read.reason), ": ", read.detail)});
    }
    TuningRecord record = *read.value;
    const std::string instead_of = put_first(record, best.head.winner.choice.id());
    if (!html_.empty()) {
      ReportRequest request;
      request.inputs = {.paths = {best.file}, .cache = service->cache().root()};
      request.template_dirs = {service_.templates.begin(), service_.templates.end()};
      request.epilogues = {service_.epilogues.begin(), service_.epilogues.end()};
      request.output = html_.getValue();
      if (const Result<ReportFile> written = write_report(request); !written) {
        return report(written.error());
      }
    }
    if (json) {
      Json object = record_json(record);
      if (const Result<ReportRow> row = judge(record, *service)) add_judgement(object, *row);
      object["match"] = to_string(best.match);
      object["reason"] = to_string(best.reason);
      object["records"] = records.size();
      object["layer"] = layer_of(best.file, service->cache()).string();
      if (!record.counters.empty()) object["counters"] = counters_json(record, *service);
      object["winner"]["samples_us"] = record.winner.measurement.samples_us;
      object["pinned"] =
          answers.decisions.pin() ? parse_value(to_json(*answers.decisions.pin())) : Json();
      object["banned"] = Json::array();
      for (const auto& [id, ban] : answers.decisions.bans()) {
        object["banned"].push_back(parse_value(to_json(ban)));
      }
      print_json(object);
      return Status::ok;
    }
    const Page page = verbose_.page();
    print_record(page, record, *service);
    const std::filesystem::path layer = layer_of(best.file, service->cache());
    if (layer != service->cache().root()) {
      page.print("found in", concat(layer.string(), ", which is only read"));
    }
    const bool as_expected = best.match == Match::exact || best.match == Match::predicted;
    if (!as_expected || page.verbose()) {
      page.print("match",
                 concat(to_string(best.match),
                        best.reason == MissReason::none ? std::string()
                                                        : concat(" (", to_string(best.reason), ")"),
                        records.size() == 1 || !page.verbose()
                            ? std::string()
                            : concat(", the best of ", records.size(), " records"),
                        as_expected ? "" : "; tune again to renew it"));
    }
    if (!instead_of.empty()) {
      page.print("instead of", concat(instead_of, ", which the checks above are of"));
    }
    if (answers.decisions.pin()) page.print("pinned", said(*answers.decisions.pin()));
    for (const auto& [id, ban] : answers.decisions.bans()) page.print("banned", said(ban));
    return Status::ok;
  }

 private:
  ServiceFlags service_;
  ProblemWords words_;
  VerboseFlag verbose_;
  llvm::cl::opt<std::string> html_;
};

}  // namespace

std::unique_ptr<Command> make_show() { return std::make_unique<Show>(); }

}  // namespace kernwright::cli
