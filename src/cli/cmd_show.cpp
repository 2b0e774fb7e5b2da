#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "cli/command.h"
#include "cli/counter_text.h"
#include "cli/family_text.h"
#include "cli/output.h"
#include "cli/record_text.h"
#include "service/report/race_picture.h"
#include "service/report/report_file.h"
#include "service/serve/answering_record.h"
#include "support/files.h"
#include "support/json.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright::cli {
namespace {

std::string said(const Override& made) {
  return concat(made.choice.id(), made.why.empty() ? "" : ": ", made.why);
}

/// Returns the root of the layer that has the file.
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
              llvm::cl::value_desc("FILE"), llvm::cl::sub(sub)),
        svg_("svg", llvm::cl::desc("Also write the race as a picture, SVG"),
             llvm::cl::value_desc("FILE"), llvm::cl::sub(sub)) {}

  bool takes_problem() const override { return true; }

  Status run() override {
    Result<Problem> problem = words_.parse(service_);
    if (!problem) return report(problem.error());
    Result<std::shared_ptr<ServiceCore>> opened = service_.open();
    if (!opened) return report(opened.error());
    const std::shared_ptr<ServiceCore> service = *std::move(opened);
    if (has_range(*problem)) return show_family(*service, *problem);
    const Result<BoundProblem> bound = service->bind(*problem);
    if (!bound) return report(bound.error());
    const AnswerFinder::First first = service->answers().first(*bound);
    if (first.record && is_family(first.record->head.key)) {
      return show_size(*service, *bound, *first.record, first.decisions);
    }
    const Result<AnsweringRecord> answer = answering_record(*service, *bound);
    if (!answer) return report(answer.error());
    const TuningRecord& record = answer->record;
    if (const Result<void> written = write_page(answer->file, *service); !written) {
      return report(written.error());
    }
    if (!svg_.empty()) {
      const std::string race = race_picture(record, PicturePlace::file);
      if (race.empty()) {
        return report({ErrorCode::not_found, "there is no race: the record has one finalist"});
      }
      if (const Result<void> written = publish_file(svg_.getValue(), race); !written) {
        return report(written.error());
      }
    }
    if (json) {
      Json object = record_json(record);
      if (const Result<ReportRow> row = judge(record, *service)) add_judgement(object, *row);
      object["match"] = to_string(answer->match);
      object["reason"] = to_string(answer->reason);
      object["records"] = answer->records;
      object["layer"] = layer_of(answer->file, service->cache()).string();
      if (!record.counters.empty()) object["counters"] = counters_json(record, *service);
      object["winner"]["samples_us"] = record.winner.measurement.samples_us;
      object["pinned"] =
          answer->decisions.pin() ? parse_value(to_json(*answer->decisions.pin())) : Json();
      object["banned"] = Json::array();
      for (const auto& [id, ban] : answer->decisions.bans()) {
        object["banned"].push_back(parse_value(to_json(ban)));
      }
      print_json(object);
      return Status::ok;
    }
    const Page page = verbose_.page();
    print_record(page, record, *service);
    const std::filesystem::path layer = layer_of(answer->file, service->cache());
    if (layer != service->cache().root()) {
      page.print("found in", concat(layer.string(), ", which is only read"));
    }
    const bool as_expected = answer->match <= Match::family || answer->match == Match::predicted;
    if (!as_expected || page.verbose()) {
      page.print("match", concat(to_string(answer->match),
                                 answer->reason == MissReason::none
                                     ? std::string()
                                     : concat(" (", to_string(answer->reason), ")"),
                                 answer->records == 1 || !page.verbose()
                                     ? std::string()
                                     : concat(", the best of ", answer->records, " records"),
                                 as_expected ? "" : "; tune again to renew it"));
    }
    if (!answer->instead_of.empty()) {
      page.print("instead of", concat(answer->instead_of, ", which the checks above are of"));
    }
    print_decisions(page, answer->decisions);
    return Status::ok;
  }

 private:
  /// Writes the record of a file as a page, if one is asked for.
  Result<void> write_page(const std::string& file, const ServiceCore& service) const {
    if (html_.empty()) return {};
    ReportRequest request;
    request.inputs = {.paths = {file}, .cache = service.cache().root()};
    request.template_dirs = {service_.templates.begin(), service_.templates.end()};
    request.epilogues = {service_.epilogues.begin(), service_.epilogues.end()};
    request.output = html_.getValue();
    KW_TRY(write_report(request));
    return {};
  }

  /// Returns an error if a picture is asked for of what has no race.
  Result<void> check_picture() const {
    if (svg_.empty()) return {};
    return Error{ErrorCode::invalid_argument,
                 "a range of sizes has no race for --svg; --html draws its kernels over the sizes"};
  }

  static void print_decisions(const Page& page, const Decisions& decisions) {
    if (decisions.pin()) page.print("pinned", said(*decisions.pin()));
    for (const auto& [id, ban] : decisions.bans()) page.print("banned", said(ban));
  }

  /// Shows which kernel of a family answers for one of its sizes.
  Status show_size(const ServiceCore& service, const BoundProblem& problem,
                   const GradedRecord& kernel, const Decisions& decisions) const {
    if (const Result<void> fits = check_picture(); !fits) return report(fits.error());
    for (const TieredCache::FoundFamily& found : service.cache().families(kernel.head.key)) {
      if (found.head.key != kernel.head.key) continue;
      if (const Result<void> written = write_page(found.file, service); !written) {
        return report(written.error());
      }
    }
    const std::string id = kernel.head.winner.choice.id();
    if (json) {
      print_json(Json{{"problem", problem.text()},
                      {"family", kernel.head.key.problem},
                      {"kernel", id},
                      {"match", to_string(kernel.match)},
                      {"reason", to_string(kernel.reason)}});
      return Status::ok;
    }
    const Page page = verbose_.page();
    page.print("size", problem.text());
    page.print("family", kernel.head.key.problem);
    page.print("kernel", id);
    page.print("match", concat(to_string(kernel.match),
                               kernel.match == Match::family ? "" : "; tune again to renew it"));
    print_decisions(page, decisions);
    return Status::ok;
  }

  Status show_family(const ServiceCore& service, const Problem& problem) const {
    if (const Result<void> fits = check_picture(); !fits) return report(fits.error());
    const Result<RangedProblem> family = service.site().bind_family(problem);
    if (!family) return report(family.error());
    const RecordKey key = service.site().key(family->text());
    const std::optional<TieredCache::FoundFamily> found = service.answers().record_of(*family);
    if (!found) return report({ErrorCode::not_found, concat("no record for ", key.text())});
    if (const Result<void> written = write_page(found->file, service); !written) {
      return report(written.error());
    }
    if (json) {
      const Lookup<FamilyRecord> record = read_family(found->file);
      if (!record) return report({ErrorCode::corrupt, record.detail});
      print_json(parse_value(to_json(*record.value)));
      return Status::ok;
    }
    const Page page = verbose_.page();
    if (found->head.key != key) page.print("sizes", key.problem);
    print_family(page, found->head);
    print_decisions(page, found->decisions);
    return Status::ok;
  }

  ServiceFlags service_;
  ProblemWords words_;
  VerboseFlag verbose_;
  llvm::cl::opt<std::string> html_;
  llvm::cl::opt<std::string> svg_;
};

}  // namespace

std::unique_ptr<Command> make_show() { return std::make_unique<Show>(); }

}  // namespace kernwright::cli
