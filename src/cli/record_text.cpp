#include "cli/record_text.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <vector>

#include "cli/output.h"
#include "service/report/sweep_report.h"
#include "support/text.h"
#include "tuner/candidates/candidate_list.h"
#include "tuner/finals/decision.h"
#include "tuner/session/predict_record.h"

namespace kernwright::cli {
namespace {

constexpr std::size_t kFewRunnersUp = 3;

/// A finalist as a row: its name, and whether its text is the difference to the winner.
struct Rank {
  std::string name;
  const RankedConfiguration* ranked = nullptr;
};

/// The parameters in which `other` differs from the winner.
std::string difference(const RankedConfiguration& other, const RankedConfiguration& winner) {
  if (other.choice.kernel_template != winner.choice.kernel_template) return other.choice.id();
  std::string text;
  for (const auto& [name, value] : other.choice.configuration.values()) {
    if (winner.choice.configuration.contains(name) && winner.choice.configuration.at(name) == value)
      continue;
    text += concat(text.empty() ? "" : " ", name, "=", value);
  }
  return text.empty() ? "nothing" : text;
}

/// How much slower a candidate is than the fastest finalist, or, if predicted, than the winner. The
/// winner may not be the fastest finalist, because a fixed rule chooses between equals.
std::string slower_text(const RankedConfiguration& ranked, const TuningRecord& record) {
  const bool measured = record.grade == RecordGrade::measured;
  if (measured && ranked.tied) return "tied";
  const double slower = measured ? std::expm1(ranked.slowdown.estimate)
                                 : ranked.predicted_us / record.winner.predicted_us - 1;
  return slower > 0 ? format_share(slower) : "none";
}

void print_ranks(const Page& page, const TuningRecord& record) {
  std::vector<Rank> ranks = {{"winner", &record.winner}};
  if (record.baseline && record.baseline->choice != record.winner.choice) {
    ranks.push_back({"default", &*record.baseline});
  }
  std::size_t left_out = 0;
  for (std::size_t i = 0; i < record.runners_up.size(); ++i) {
    const RankedConfiguration& ranked = record.runners_up[i];
    if (ranks.size() > 1 && ranks[1].ranked->choice == ranked.choice) continue;
    if (i >= kFewRunnersUp && !page.verbose()) {
      ++left_out;
    } else {
      ranks.push_back({concat(i + 2, i == 0 ? "nd" : i == 1 ? "rd" : "th"), &ranked});
    }
  }
  if (ranks.size() == 1) return;

  const bool measured = record.grade == RecordGrade::measured;
  const bool alone = std::any_of(ranks.begin(), ranks.end(), [&](const Rank& rank) {
    return !final_times(*rank.ranked, record.rounds).alone.samples_us.empty();
  });
  std::vector<Table::Column> columns = {{""}, {"time", true}};
  if (measured) columns.push_back({"spread", true});
  if (measured && page.verbose()) columns.push_back({"samples", true});
  if (alone) columns.push_back({"alone", true});
  columns.push_back({"slower by", true});
  columns.push_back({page.verbose() ? "candidate" : "differs from the winner in"});
  Table table(std::move(columns));
  for (const Rank& rank : ranks) {
    const bool winner = rank.ranked == &record.winner;
    const FinalTimes times = final_times(*rank.ranked, record.rounds);
    const bool timed = !times.in_turn.samples_us.empty();
    std::vector<std::string> cells = {
        rank.name, format_us(timed ? times.in_turn.median_us() : rank.ranked->predicted_us)};
    if (measured) cells.push_back(timed ? format_us(times.in_turn.mad_us()) : "predicted");
    if (measured && page.verbose()) cells.push_back(concat(times.in_turn.samples_us.size()));
    if (alone) {
      cells.push_back(times.alone.samples_us.empty() ? "" : format_us(times.alone.median_us()));
    }
    cells.push_back(winner ? "" : slower_text(*rank.ranked, record));
    cells.push_back(page.verbose() ? rank.ranked->choice.id()
                    : winner       ? ""
                                   : difference(*rank.ranked, record.winner));
    table.add(std::move(cells));
  }
  page.print(table);
  if (left_out > 0) page.print("", concat(left_out, " more with --verbose"));
}

void print_evidence(const Page& page, const TuningRecord& record) {
  page.print("verdict", concat(to_string(record.verdict), ", trust ", to_string(record.trust)));
  for (const AuditRow& row : record.audit.rows) {
    if (row.trust == Trust::a) continue;
    page.print("", concat(to_string(row.trust), " for ", row.check, ": ", row.detail));
  }
  page.print("checked",
             concat(record.check.elements, " elements: ", record.check.mismatches,
                    " beyond the bound, largest error ", format_share(record.check.max_error),
                    " of it; ", record.check.exact ? "exact on small integers, " : "",
                    record.check.guarded ? "red zones intact, " : "",
                    record.check.unmapped ? "no stray access, " : "", record.check.repeats,
                    " runs with equal bits"));
  if (!record.launch_paths.best) {
    page.print("launches", "paths not measured");
    return;
  }
  page.print("launches", concat("best by ", to_string(*record.launch_paths.best)));
  Table paths({{"path"}, {"host", true}, {"back to back", true}});
  for (const PathTime& time : record.launch_paths.times) {
    paths.add(
        {std::string(to_string(time.path)), format_us(time.host_us), format_us(time.period_us)});
  }
  page.print(paths);
}

std::string outcomes_text(const TuningResult& result) {
  std::map<std::string, int> counts;
  for (const Trial& trial : result.trials) ++counts[std::string(to_string(trial.outcome))];
  std::string text;
  for (const auto& [outcome, count] : counts) {
    text += concat(text.empty() ? "" : ", ", count, " ", outcome);
  }
  return text;
}

std::string share_of(double part, double whole) {
  return format_share(whole > 0 ? part / whole : 0);
}

}  // namespace

double winner_us(const TuningRecord& record) {
  const Measurement in_turn = final_times(record.winner, record.rounds).in_turn;
  return in_turn.samples_us.empty() ? record.winner.predicted_us : in_turn.median_us();
}

std::string roofline_text(const TuningRecord& record, const ServiceCore& service) {
  const Result<Problem> problem = Problem::parse(record.key.problem);
  const Result<BoundProblem> bound =
      problem ? service.bind(*problem) : Result<BoundProblem>(problem.error());
  if (!bound) return concat("roofline ", format_us(record.roofline_us));
  const ReportRow row = report_row(record, *bound, service.profile());
  if (row.bound == Bound::launch) return "bound by the launch";
  return concat(format_share(row.roofline_share), " of the roofline (",
                format_us(record.roofline_us), "), bound by ",
                row.bound == Bound::memory ? "memory" : "arithmetic");
}

void print_record(const Page& page, const TuningRecord& record, const ServiceCore& service) {
  const bool measured = record.grade == RecordGrade::measured;
  page.print(page.abridged(record.key.problem), 2);
  page.print("on", concat(record.device_name, " (", record.key.sku, ", ", record.key.target, "), ",
                          measured ? "measured " : "predicted ", record.created));
  page.print("policy", record.key.policy.text());
  page.print("winner", concat(format_us(winner_us(record)), measured ? "" : " predicted", ", ",
                              roofline_text(record, service)));
  page.print("", record.winner.choice.kernel_template);
  page.print("", record.winner.choice.configuration.text());
  print_ranks(page, record);
  if (default_kept(record)) {
    page.print("", concat("default kept: nobody is predicted more than ", format_share(kModelDoubt),
                          " faster"));
  }
  if (measured) print_evidence(page, record);
  std::string search = concat(record.candidates, " candidates");
  if (measured) {
    search += concat(", ", record.measured, " measured, stopped by ", record.search.stop_reason);
    if (record.search.regret_estimate > 0) {
      search += concat("; what was not tried may be ", format_share(record.search.regret_estimate),
                       " faster");
    }
  } else {
    search += ", none measured";
  }
  page.print("search", search);
  if (measured && hardly_looked(record)) {
    page.print(
        "", concat("the search has hardly looked: ", record.measured + record.search.failed, " of ",
                   record.candidates, " candidates were tried before its ",
                   record.search.stop_reason == "trials" ? "trials" : "seconds", " were over"));
  }
  std::string made = record.environment.compiler;
  if (!page.verbose()) made = made.substr(0, made.rfind(' '));
  if (!record.environment.driver.empty()) made += concat(", driver ", record.environment.driver);
  page.print("made with", concat(made, ", kernwright ", record.environment.kernwright));
}

void print_result(const Page& page, const TuningResult& result, const ServiceCore& service) {
  print_record(page, result.record, service);
  page.print(
      "trials",
      concat(outcomes_text(result),
             page.verbose() ? concat("; ", result.rejected, " configurations break a rule") : ""));
  for (const std::string& note : result.notes) page.print("note", note);
  const TimeShares& shares = result.shares;
  std::string time = format_duration(shares.wall_seconds);
  if (shares.measure_seconds > 0) {
    time += concat(": set-up ", share_of(shares.setup_seconds, shares.wall_seconds), ", measuring ",
                   share_of(shares.measure_seconds, shares.wall_seconds), ", more of the best ",
                   share_of(shares.filler_seconds, shares.wall_seconds), ", finals ",
                   share_of(shares.finals_seconds, shares.wall_seconds));
  }
  page.print("time", concat(time, "; compiling took ", format_duration(shares.compile_seconds),
                            " on ", shares.compile_threads, " threads"));
  const DeviceUse& device = shares.device;
  if (device.busy_seconds > 0) {
    page.print("", concat("from its first sample on the GPU was idle for ",
                          share_of(device.idle_seconds(), device.seconds()), ", at most ",
                          format_us(1e6 * device.longest_idle_seconds), " at a time"));
  }
}

void print_winner(const Page& page, const TuningRecord& record, std::string_view note) {
  page.print(page.abridged(record.key.problem), 2);
  page.print(concat("  ", format_us(winner_us(record)),
                    record.grade == RecordGrade::measured ? " measured, " : " predicted, ",
                    record.winner.choice.id()),
             4);
  if (!note.empty()) page.print(concat("  (", note, ")"), 4);
}

}  // namespace kernwright::cli
