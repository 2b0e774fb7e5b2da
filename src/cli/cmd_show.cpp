#include "cli/command.h"
#include "cli/output.h"
#include "cli/record_text.h"
#include "support/text.h"

namespace kernwright::cli {
namespace {

class Show : public Command {
 public:
  Show()
      : Command("show", "Show the record of a problem with its evidence"),
        service_(sub),
        words_(sub),
        verbose_(sub) {}

  bool takes_problem() const override { return true; }

  Status run() override {
    Result<Problem> problem = words_.parse(service_);
    if (!problem) return report(problem.error());
    Result<std::shared_ptr<ServiceCore>> opened = service_.open();
    if (!opened) return report(opened.error());
    const std::shared_ptr<ServiceCore> service = *std::move(opened);
    Result<ServiceCore::Named> named = service->name(*problem);
    if (!named) return report(named.error());
    MissReason reason = MissReason::none;
    const std::vector<GradedRecord> records = service->records(named->problem, reason);
    if (records.empty()) {
      return report({ErrorCode::not_found, concat("no record for ", named->problem.text(), " on ",
                                                  service->profile().id, ": ", to_string(reason))});
    }
    const GradedRecord& best = records.front();
    if (best.file.empty()) {
      return report({ErrorCode::not_found,
                     concat(best.head.winner.id(), " is pinned, and no record knows it")});
    }
    const Lookup<TuningRecord> read = read_record(best.file);
    if (!read) {
      return report({ErrorCode::corrupt, concat(to_string(read.reason), ": ", read.detail)});
    }
    const TuningRecord& record = *read.value;
    if (json) {
      Json object = record_json(record);
      object["match"] = to_string(best.match);
      object["reason"] = to_string(best.reason);
      object["records"] = records.size();
      object["winner"]["samples_us"] = record.winner.measurement.samples_us;
      print_json(object);
      return Status::ok;
    }
    const Page page = verbose_.page();
    print_record(page, record, *service);
    page.print("match",
               concat(to_string(best.match),
                      best.reason == MissReason::none ? std::string()
                                                      : concat(" (", to_string(best.reason), ")"),
                      records.size() == 1 ? std::string()
                                          : concat(", the best of ", records.size(), " records")));
    return Status::ok;
  }

 private:
  ServiceFlags service_;
  ProblemWords words_;
  VerboseFlag verbose_;
};

}  // namespace

std::unique_ptr<Command> make_show() { return std::make_unique<Show>(); }

}  // namespace kernwright::cli
