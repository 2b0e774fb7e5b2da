#include "cli/record_text.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <vector>

#include "cache/records/record_view.h"
#include "cli/counter_text.h"
#include "cli/output.h"
#include "service/report/record_words.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright::cli {
namespace {

/// A finalist as a row.
struct Rank {
  std::string name;
  const RankedConfiguration* ranked = nullptr;
};

/// Returns true if predictions tell the candidates of a template apart: its manifest declares what
/// they cost.
bool has_cost_model(const Choice& choice, const ServiceCore& service) {
  const Result<const KernelTemplate*> found =
      service.catalog().kernel_template(choice.kernel_template);
  return found && !(*found)->cost.empty();
}

/// Returns how much slower a candidate is than the fastest finalist, or, if predicted, than the
/// winner. The winner may not be the fastest finalist, because a fixed rule chooses between equals.
std::string slower_text(const RankedConfiguration& ranked, const TuningRecord& record,
                        const ServiceCore& service) {
  const bool measured = record.grade == RecordGrade::measured;
  if (measured && ranked.tied) return "tied";
  if (!measured && !has_cost_model(ranked.choice, service)) return "no cost model";
  // A default is kept although another is predicted to be faster by less than can be told.
  if (!measured && ranked.predicted_us <= record.winner.predicted_us) return "tied";
  const double slower = measured ? std::expm1(ranked.slowdown.estimate)
                                 : ranked.predicted_us / record.winner.predicted_us - 1;
  return slower > 0 ? format_share(slower) : "none";
}

void print_ranks(const Page& page, const TuningRecord& record, const ServiceCore& service) {
  std::vector<Rank> ranks = {{"winner", &record.winner}};
  if (record.baseline && record.baseline->choice != record.winner.choice) {
    ranks.push_back({"default", &*record.baseline});
  }
  for (std::size_t i = 0; i < record.runners_up.size(); ++i) {
    const RankedConfiguration& ranked = record.runners_up[i];
    if (ranks.size() > 1 && ranks[1].ranked->choice == ranked.choice) continue;
    ranks.push_back({concat(i + 2, i == 0 ? "nd" : i == 1 ? "rd" : "th"), &ranked});
  }
  if (ranks.size() == 1) return;

  const bool measured = record.grade == RecordGrade::measured;
  const bool alone = std::any_of(ranks.begin(), ranks.end(), [&](const Rank& rank) {
    return !final_times(*rank.ranked, record.rounds).alone.samples_us.empty();
  });
  std::vector<Table::Column> columns = {{""}, {"time", true}};
  if (measured) columns.push_back({"spread", true});
  if (measured) columns.push_back({"samples", true});
  if (alone) columns.push_back({"alone", true});
  columns.push_back({"slower by", true});
  columns.push_back({"candidate"});
  Table table(std::move(columns));
  for (const Rank& rank : ranks) {
    const bool winner = rank.ranked == &record.winner;
    const FinalTimes times = final_times(*rank.ranked, record.rounds);
    const bool timed = !times.in_turn.samples_us.empty();
    std::vector<std::string> cells = {
        rank.name, format_us(timed ? times.in_turn.median_us() : rank.ranked->predicted_us)};
    if (measured) cells.push_back(timed ? format_us(times.in_turn.mad_us()) : "predicted");
    if (measured) cells.push_back(concat(times.in_turn.samples_us.size()));
    if (alone) {
      cells.push_back(times.alone.samples_us.empty() ? "" : format_us(times.alone.median_us()));
    }
    cells.push_back(winner ? "" : slower_text(*rank.ranked, record, service));
    cells.push_back(rank.ranked->choice.id());
    table.add(std::move(cells));
  }
  page.print(table);
}

std::string_view name_of(Speedup::Over over) {
  switch (over) {
    case Speedup::Over::default_configuration:
      return "the default";
    case Speedup::Over::first_choice:
      return "the cost model's first choice";
    case Speedup::Over::previous_winner:
      return "the previous winner";
  }
  return "";
}

void print_speedups(const Page& page, const TuningRecord& record, const ReportRow& row) {
  std::vector<std::string> lines;
  for (const Speedup& speedup : row.speedups) {
    const std::string range = concat(fixed(speedup.low, 2), " to ", fixed(speedup.high, 2));
    lines.push_back(speedup.level()
                        ? concat("level with ", name_of(speedup.over), " (", range, " times)")
                        : concat(fixed(speedup.times, 2), " times as fast as ",
                                 name_of(speedup.over), " (", range, ")"));
  }
  const bool measured = record.grade == RecordGrade::measured;
  const Traits traits = measured ? record.winner.traits : Traits{};
  if (traits.is_default) lines.emplace_back("the winner is the default: nothing beat it");
  if (traits.is_predicted) lines.emplace_back("the winner is the cost model's first choice");
  for (const std::string& line : lines) {
    page.print(&line == lines.data() ? "speed-up" : "", line);
  }
}

/// Returns how sure the winner is, in words. `others` counts the finalists that are not told apart
/// from it.
std::string verdict_text(const TuningRecord& record) {
  const std::size_t all = record.runners_up.size();
  const auto others = static_cast<std::size_t>(
      std::count_if(record.runners_up.begin(), record.runners_up.end(),
                    [](const RankedConfiguration& ranked) { return ranked.tied; }));
  const auto finalists = [](std::size_t count, std::string_view are) {
    return concat(counted(count, "other of the finals is ", "others of the finals are "), are);
  };
  switch (record.verdict) {
    case Verdict::win:
      return all == 0 ? "win: nobody else reached the finals"
                      : concat("win: ", finalists(all, "slower"));
    case Verdict::tie:
      return concat("tie: ", finalists(others, "as fast"), ", a fixed rule chose");
    case Verdict::unresolved:
      if (hardly_looked(record)) {
        return concat("unresolved: the search has hardly looked, ", tried_words(record),
                      " before its ", record.search.stop_reason == "trials" ? "trials" : "seconds",
                      " were over");
      }
      return others == 0 ? "unresolved: the finals were disturbed or too short"
                         : concat("unresolved: ", finalists(others, "not told apart from it"));
  }
  return "";
}

void print_certainty(const Page& page, const TuningRecord& record, const ServiceCore& service) {
  if (record.grade == RecordGrade::predicted && !has_cost_model(record.winner.choice, service)) {
    page.print("sure", concat("predicted, but ", record.winner.choice.kernel_template,
                              " declares no \"cost\": nothing tells its candidates apart",
                              record.winner.traits.is_default ? ", and the default is kept" : "",
                              "; nothing was measured"));
    return;
  }
  if (record.grade == RecordGrade::predicted) {
    page.print("sure",
               default_kept(record)
                   ? concat("predicted: the default is kept, none of ", record.candidates,
                            " candidates is predicted more than ", format_share(kModelDoubt),
                            " faster; nothing was measured")
                   : concat("predicted: the best of ", counted(record.candidates, "candidate"),
                            " by the cost model; nothing was measured"));
    return;
  }
  page.print("sure", concat(verdict_text(record), "; trust ", to_string(record.trust)));
  for (const AuditRow& row : record.audit.rows) {
    const bool decides = row.trust == record.trust;
    if (row.trust == Trust::a || !(decides || page.verbose())) continue;
    page.print("", concat(to_string(row.trust), " for ", row.check, ": ", row.detail));
  }
  std::string search = concat(record.measured, " of ", counted(record.candidates, "candidate"));
  if (record.wall_seconds > 0) search += concat(" in ", format_duration(record.wall_seconds));
  search += concat(", stopped by ", record.search.stop_reason);
  if (record.search.regret_estimate > 0) {
    search +=
        concat("; untried ones may be ", format_share(record.search.regret_estimate), " faster");
  }
  page.print("search", search);
}

void print_evidence(const Page& page, const TuningRecord& record) {
  page.print("checked",
             concat(counted(record.check.elements, "element"), ": ", record.check.mismatches,
                    " beyond the bound, largest error ", format_share(record.check.max_error),
                    " of it; ", record.check.exact ? "exact on small integers, " : "",
                    record.check.guarded ? "red zones intact, " : "",
                    record.check.unmapped ? "no stray access, " : "", record.check.repeats,
                    " runs with equal bits"));
  const std::string best = launch_words(record.launch_paths);
  if (best.empty()) {
    page.print("launches", "paths not measured");
    return;
  }
  page.print("launches", concat("best by ", best));
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

Result<ReportRow> judge(const TuningRecord& record, const ServiceCore& service) {
  KW_ASSIGN(const Problem problem, Problem::parse(record.key.problem));
  KW_ASSIGN(const BoundProblem bound, service.bind(problem));
  return report_row(record, &bound, service.profile());
}

std::string bound_text(const ReportRow& row) {
  if (row.bound == Bound::launch) return "bound by the launch";
  const std::string share = concat(format_share(row.roofline_share), " of the roofline");
  return row.bound ? concat(share, ", which ", to_string(*row.bound), " sets") : share;
}

void print_record(const Page& page, const TuningRecord& record, const ServiceCore& service) {
  const bool measured = record.grade == RecordGrade::measured;
  const Result<ReportRow> row = judge(record, service);
  page.print(page.abridged(record.key.problem), 2);
  page.print("winner",
             concat(format_us(winner_us(record)), measured ? "" : " predicted", ", ",
                    row ? bound_text(*row) : concat("roofline ", format_us(record.roofline_us))));
  page.print("", record.winner.choice.id());
  if (row) print_speedups(page, record, *row);
  print_certainty(page, record, service);
  if (!page.verbose()) print_counter_summary(page, record, service);
  if (row) {
    // The reason has been printed above already.
    page.print("next", row->next.action.empty() ? "nothing: more tuning is not expected to help"
                                                : row->next.action);
  }
  std::string made = concat(measured ? "on " : "for ", record.device_name);
  if (record.key.policy.l2 != L2State::cold) {
    made += concat(" with a ", to_string(record.key.policy.l2), " L2");
  }
  page.print("made", concat(made, ", ", record.created));
  if (!page.verbose()) return;
  page.print("policy", concat(record.key.policy.text(), ", ", record.key.sku, ", ",
                              record.key.target, ", roofline ", format_us(record.roofline_us)));
  print_ranks(page, record, service);
  if (measured) print_evidence(page, record);
  print_counters(page, record, service);
  std::string with = record.environment.compiler;
  if (!record.environment.driver.empty()) with += concat(", driver ", record.environment.driver);
  page.print("made with", concat(with, ", kernwright ", record.environment.kernwright));
}

void print_result(const Page& page, const TuningResult& result, const ServiceCore& service) {
  print_record(page, result.record, service);
  // Notes that begin with a template's name say why it does not compete.
  const std::string of_templates = concat(operation_of(result.record.key.problem), "/");
  for (const std::string& note : result.notes) {
    if (page.verbose() || !note.starts_with(of_templates)) page.print("note", note);
  }
  if (!page.verbose()) return;
  page.print("trials",
             concat(outcomes_text(result), "; ", result.rejected, " configurations break a rule"));
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
