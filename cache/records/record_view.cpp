#include "cache/records/record_view.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "support/text.h"

namespace kernwright {
namespace {

/// One step of the order in which `decide` prefers finalists: the smaller rank is preferred.
struct Preference {
  std::string_view words;
  std::int64_t (*rank)(const Traits& traits);
};

constexpr Preference kPreferences[] = {
    {"it was the winner so far", [](const Traits& t) { return std::int64_t{!t.is_incumbent}; }},
    {"it is the default", [](const Traits& t) { return std::int64_t{!t.is_default}; }},
    {"it is what is served untuned", [](const Traits& t) { return std::int64_t{!t.is_predicted}; }},
    {"its results repeat bit by bit",
     [](const Traits& t) { return std::int64_t{!t.deterministic}; }},
    {"it needs less workspace", [](const Traits& t) { return t.workspace_bytes; }},
    {"the compiler did not warn of it", [](const Traits& t) { return std::int64_t{t.warned}; }},
    {"it needs fewer registers",
     [](const Traits& t) { return std::int64_t{t.resources.registers}; }},
    {"it needs less shared memory", [](const Traits& t) { return t.smem_bytes; }},
};

/// Returns the number of candidates that the search of a record tried.
int tried(const TuningRecord& record) { return record.measured + record.search.failed; }

}  // namespace

FinalTimes final_times(const RankedConfiguration& ranked, const FinalRounds& rounds) {
  FinalTimes times{.in_turn = ranked.measurement, .alone = {}};
  const auto blocks = static_cast<std::size_t>(rounds.block_rounds);
  if (!ranked.in_blocks || blocks > ranked.measurement.samples_us.size()) return times;
  const auto split = [blocks](std::vector<double>& from, std::vector<double>& to) {
    if (from.size() < blocks) return;
    to.assign(from.end() - static_cast<std::ptrdiff_t>(blocks), from.end());
    from.resize(from.size() - blocks);
  };
  split(times.in_turn.samples_us, times.alone.samples_us);
  split(times.in_turn.sm_mhz, times.alone.sm_mhz);
  return times;
}

double winner_us(const TuningRecord& record) {
  const Measurement in_turn = final_times(record.winner, record.rounds).in_turn;
  return in_turn.samples_us.empty() ? record.winner.predicted_us : in_turn.median_us();
}

bool gap_dominated(const RankedConfiguration& ranked) {
  constexpr double kShare = 0.2;
  return ranked.launch_gap_us > kShare * ranked.measurement.median_us();
}

bool default_kept(const TuningRecord& record) {
  return record.grade == RecordGrade::predicted && record.winner.traits.is_default &&
         !record.runners_up.empty() &&
         record.runners_up.front().predicted_us < record.winner.predicted_us;
}

bool hardly_looked(int ended, int candidates) { return ended < std::min(kFewestLooks, candidates); }

bool hardly_looked(const TuningRecord& record) {
  const std::string& reason = record.search.stop_reason;
  return record.grade == RecordGrade::measured && (reason == "budget" || reason == "trials") &&
         hardly_looked(tried(record), record.candidates);
}

std::string tried_words(const TuningRecord& record) {
  return concat(tried(record), " of ", counted(record.candidates, "candidate"),
                tried(record) == 1 ? " was" : " were", " tried");
}

bool may_be_faster(const TuningRecord& record) {
  return record.search.stop_reason == "budget" && record.search.regret_estimate > kWorthwhile;
}

std::string certainty(const TuningRecord& record) {
  if (record.grade == RecordGrade::predicted) return "predicted";
  return concat(to_string(record.verdict), " ", to_string(record.trust));
}

std::string tie_rule(const TuningRecord& record) {
  std::vector<const Traits*> tied;
  for (const RankedConfiguration& ranked : record.runners_up) {
    if (ranked.tied) tied.push_back(&ranked.traits);
  }
  if (tied.empty()) return {};
  const Traits& winner = record.winner.traits;
  for (const Preference& preference : kPreferences) {
    const std::int64_t own = preference.rank(winner);
    const auto preferred = [&](const Traits* other) { return preference.rank(*other) < own; };
    // The rule before a newcomer may win: it must be as fast as the ones that it is preferred to.
    if (std::any_of(tied.begin(), tied.end(), preferred)) {
      return "those that would be preferred are not sure to be as fast";
    }
    std::erase_if(tied, [&](const Traits* other) { return preference.rank(*other) > own; });
    if (tied.empty()) return std::string(preference.words);
  }
  return "nothing tells them apart, so the order of their names decides";
}

}  // namespace kernwright
