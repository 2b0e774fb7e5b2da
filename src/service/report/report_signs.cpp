#include "service/report/report_signs.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "cache/records/record_view.h"
#include "service/report/sweep_report.h"
#include "support/text.h"

namespace kernwright {
namespace {

/// Returns true for outcomes of candidates that would have harmed a user.
bool is_harmful(Outcome outcome) {
  return outcome == Outcome::wrong_result || outcome == Outcome::out_of_bounds ||
         outcome == Outcome::illegal_address || outcome == Outcome::worker_died ||
         outcome == Outcome::timed_out || outcome == Outcome::nondeterministic;
}

class Signs {
 public:
  explicit Signs(const ReportSources& sources) : sources_(sources) {}

  using Test = std::function<bool(const ReportedRecord&)>;
  /// Adds a sign for the records that `test` finds; `words(count)` is the sentence.
  template <typename Words>
  void add(const Test& test, const Words& words) {
    ReportSign sign;
    for (std::size_t i = 0; i < sources_.records.size(); ++i) {
      if (test(sources_.records[i])) sign.records.push_back(i);
    }
    if (sign.records.empty()) return;
    sign.text = words(sign.records.size());
    signs.push_back(std::move(sign));
  }

  /// Adds a sign for the records of one trust, with the checks that lowered it.
  void add_trust(Trust trust, std::string_view words) {
    std::set<std::string> checks;
    for (const ReportedRecord& reported : sources_.records) {
      if (reported.record.trust != trust || reported.record.grade == RecordGrade::predicted) {
        continue;
      }
      for (const AuditRow& row : reported.record.audit.rows) {
        if (row.trust == trust) checks.insert(row.check);
      }
    }
    std::string names;
    for (const std::string& check : checks) names += concat(names.empty() ? "" : ", ", check);
    add(
        [trust](const ReportedRecord& reported) {
          return reported.record.trust == trust && reported.record.grade == RecordGrade::measured;
        },
        [&](std::size_t count) {
          return concat(counted(count, "record has", "records have"), " trust ", to_string(trust),
                        ": ", words, names.empty() ? "" : concat(" (", names, ")"), '.');
        });
  }

  std::vector<ReportSign> signs;

 private:
  const ReportSources& sources_;
};

std::size_t environments(const ReportSources& sources) {
  std::set<std::pair<std::string, std::string>> all;
  for (const ReportedRecord& reported : sources.records) {
    if (reported.record.grade == RecordGrade::predicted) continue;
    all.emplace(reported.record.environment.driver, reported.record.environment.compiler);
  }
  return all.size();
}

}  // namespace

std::vector<ReportSign> report_signs(const ReportSources& sources) {
  Signs signs(sources);
  if (const std::size_t count = sources.defects.size(); count > 0) {
    signs.signs.push_back({concat(counted(count, "file", "files"), " could not be read."), {}});
  }
  if (const std::size_t count = sources.missing.size(); count > 0) {
    signs.signs.push_back(
        {concat(counted(count, "problem has", "problems have"), " no record."), {}});
  }
  signs.add([](const ReportedRecord& one) { return one.record.grade == RecordGrade::predicted; },
            [](std::size_t count) {
              return concat(counted(count, "record is a prediction", "records are predictions"),
                            ": nothing was measured.");
            });
  signs.add_trust(Trust::c, "to be measured again");
  signs.add([](const ReportedRecord& one) { return hardly_looked(one.record); },
            [](std::size_t count) {
              return concat(counted(count, "search has", "searches have"),
                            " hardly looked: too few candidates were tried.");
            });
  signs.add(
      [](const ReportedRecord& one) {
        return one.record.grade == RecordGrade::measured && !hardly_looked(one.record) &&
               one.record.verdict == Verdict::unresolved;
      },
      [](std::size_t count) {
        return concat(counted(count, "race is", "races are"),
                      " unresolved: who is fastest is not known beyond doubt.");
      });
  signs.add([](const ReportedRecord& one) { return may_be_faster(one.record); },
            [](std::size_t count) {
              return concat(counted(count, "search", "searches"),
                            " ended by the budget while what was not tried may be ",
                            fixed(100 * kWorthwhile, 0), " % faster or more.");
            });
  signs.add_trust(Trust::b, "usable, but something was found");
  signs.add(
      [](const ReportedRecord& one) {
        return one.trials &&
               std::any_of(one.trials->rows.begin(), one.trials->rows.end(),
                           [](const TrialRow& row) { return is_harmful(row.outcome); });
      },
      [](std::size_t count) {
        return concat("In ", counted(count, "search", "searches"),
                      " candidates crashed, hung or gave wrong results; none of them is served.");
      });
  if (const std::size_t count = environments(sources); count > 1) {
    signs.signs.push_back(
        {concat("The records come from ", count, " environments: drivers or compilers differ."),
         {}});
  }
  return std::move(signs.signs);
}

}  // namespace kernwright
