#include "bench/simulation/predicted_order.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "support/text.h"

namespace kernwright {
namespace {

/// Template and the values that `value_of` gives for the names of `names`; empty where one has
/// none.
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

/// Of each template any configuration that was recorded, for the names of its parameters.
std::map<std::string, Configuration> recorded_names(const RecordedSpace& space) {
  std::map<std::string, Configuration> names;
  for (const RecordedConfiguration& one : space.configurations) {
    names.emplace(space.templates[static_cast<std::size_t>(one.kernel_template)],
                  one.configuration);
  }
  return names;
}

}  // namespace

RecordedSpace predicted_today(const RecordedSpace& space, const CandidateList& list) {
  const auto names = recorded_names(space);
  // Of candidates that differ only in what was not recorded, that with the defaults stands for what
  // was there before such a parameter. What was a parameter may be a derived value today.
  std::map<std::string, std::pair<int, double>> predicted;
  for (std::size_t i = 0; i < list.candidates.size(); ++i) {
    const Candidate& candidate = list.candidates[i];
    const auto known = names.find(candidate.kernel_template->name);
    if (known == names.end()) continue;
    const std::pair found(distance_from_default(candidate), list.predicted_us[i]);
    const auto [place, added] =
        predicted.emplace(key(known->first, known->second,
                              [&](std::string_view name) { return candidate.scope.find(name); }),
                          found);
    if (!added) place->second = std::min(place->second, found);
  }
  RecordedSpace today = space;
  today.configurations.clear();
  today.default_index = 0;
  for (std::size_t i = 0; i < space.configurations.size(); ++i) {
    const RecordedConfiguration& one = space.configurations[i];
    const std::string& name = space.templates[static_cast<std::size_t>(one.kernel_template)];
    const auto found = predicted.find(key(name, names.at(name), [&](std::string_view parameter) {
      return one.configuration.contains(parameter) ? std::optional(one.configuration.at(parameter))
                                                   : std::nullopt;
    }));
    if (found == predicted.end()) continue;
    if (i == space.default_index) today.default_index = today.configurations.size();
    today.configurations.push_back(one);
    today.configurations.back().predicted_us = found->second.second;
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
