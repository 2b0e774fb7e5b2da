#include "bench/simulation/predicted_order.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "support/text.h"

namespace kernwright {
namespace {

/// Returns the template and the values that `value_of` has for the names of `names`; empty if one
/// has none.
template <typename ValueOf>
std::string key(std::string_view kernel_template, const Configuration& names, ValueOf value_of) {
  std::string text(kernel_template);
  for (const auto& [name, recorded] : names.values()) {
    const std::optional<std::int64_t> value = value_of(name);
    if (!value) return "";
    text += concat(" ", name, "=", *value);
  }
  return text;
}

/// Returns for each template any configuration that was recorded, for the names of its parameters.
std::map<std::string, Configuration> recorded_names(const RecordedSpace& space) {
  std::map<std::string, Configuration> names;
  for (const RecordedConfiguration& one : space.configurations) {
    names.emplace(space.templates[static_cast<std::size_t>(one.kernel_template)],
                  one.configuration);
  }
  return names;
}

}  // namespace

std::vector<std::optional<std::size_t>> candidates_of(const RecordedSpace& space,
                                                      const CandidateList& list) {
  const auto names = recorded_names(space);
  // Among candidates that differ only in parameters that were not recorded, the one with the
  // defaults represents the kernel from before these parameters. A parameter of then may be a
  // derived value today.
  std::map<std::string, std::pair<int, std::size_t>> known;
  for (std::size_t i = 0; i < list.candidates.size(); ++i) {
    const Candidate& candidate = list.candidates[i];
    const auto recorded = names.find(candidate.kernel_template->name);
    if (recorded == names.end()) continue;
    const std::pair found(distance_from_default(candidate), i);
    const auto [place, added] =
        known.emplace(key(recorded->first, recorded->second,
                          [&](std::string_view name) { return candidate.scope.find(name); }),
                      found);
    if (added) continue;
    const auto rank = [&list](const std::pair<int, std::size_t>& one) {
      return std::pair(one.first, list.predicted_us[one.second]);
    };
    if (rank(found) < rank(place->second)) place->second = found;
  }
  std::vector<std::optional<std::size_t>> places;
  for (const RecordedConfiguration& one : space.configurations) {
    const std::string& name = space.templates[static_cast<std::size_t>(one.kernel_template)];
    const auto found = known.find(key(name, names.at(name), [&](std::string_view parameter) {
      return one.configuration.contains(parameter) ? std::optional(one.configuration.at(parameter))
                                                   : std::nullopt;
    }));
    places.push_back(found == known.end() ? std::nullopt : std::optional(found->second.second));
  }
  return places;
}

RecordedSpace predicted_today(const RecordedSpace& space, const CandidateList& list) {
  RecordedSpace today = space;
  today.configurations.clear();
  today.default_index = 0;
  const auto places = candidates_of(space, list);
  for (std::size_t i = 0; i < space.configurations.size(); ++i) {
    if (!places[i]) continue;
    if (i == space.default_index) today.default_index = today.configurations.size();
    today.configurations.push_back(space.configurations[i]);
    today.configurations.back().predicted_us = list.predicted_us[*places[i]];
  }
  return today;
}

std::vector<Judged> in_predicted_order(const RecordedSpace& space, const CandidateList& list) {
  std::vector<Judged> judged;
  for (const RecordedConfiguration& one : predicted_today(space, list).configurations) {
    Judged& added = judged.emplace_back();
    added.predicted_us = one.predicted_us;
    if (one.outcome == Outcome::ok) added.truth_us = one.truth_us;
    if (one.final_us > 0) added.final_us = one.final_us;
    added.compiles = one.outcome != Outcome::compile_failed &&
                     one.outcome != Outcome::link_failed && one.outcome != Outcome::spilled;
  }
  std::stable_sort(judged.begin(), judged.end(), [](const Judged& a, const Judged& b) {
    return a.predicted_us < b.predicted_us;
  });
  return judged;
}

double fastest(std::span<const Judged> judged, std::size_t count, double Judged::* time) {
  double us = std::numeric_limits<double>::infinity();
  for (const Judged& one : judged.first(std::min(count, judged.size()))) {
    us = std::min(us, one.*time);
  }
  return us;
}

}  // namespace kernwright
