#include "service/report/tie_rule.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

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

}  // namespace

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
