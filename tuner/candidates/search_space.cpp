#include "tuner/candidates/search_space.h"

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>

namespace kernwright {
namespace {

/// A warm start that is not valid here is replaced by one that differs in at most so many
/// parameters.
constexpr std::size_t kMostDifferences = 2;

/// Returns the number of parameters in which they differ, or nullopt if they are of different
/// templates.
std::optional<std::size_t> differences(const Candidate& candidate, const Choice& choice) {
  if (candidate.kernel_template->name != choice.kernel_template) return std::nullopt;
  const auto& values = candidate.configuration.values();
  return static_cast<std::size_t>(
      std::count_if(values.begin(), values.end(), [&](const auto& entry) {
        return !choice.configuration.contains(entry.first) ||
               choice.configuration.at(entry.first) != entry.second;
      }));
}

std::optional<std::size_t> find_warm_start(const CandidateList& list, const Choice& choice) {
  std::optional<std::size_t> nearest;
  std::size_t fewest = kMostDifferences + 1;
  for (std::size_t i = 0; i < list.candidates.size() && fewest > 0; ++i) {
    const auto differing = differences(list.candidates[i], choice);
    if (!differing || *differing >= fewest) continue;
    nearest = i;
    fewest = *differing;
  }
  return nearest;
}

}  // namespace

SearchSpace make_search_space(const CandidateList& list, std::span<const Choice> warm_starts) {
  SearchSpace space;
  space.predicted_us = list.predicted_us;
  space.group_of = list.group_of;
  space.default_index = list.default_index;
  std::unordered_map<const KernelTemplate*, int> templates;
  for (const Candidate& candidate : list.candidates) {
    space.configurations.push_back(&candidate.configuration);
    const int next = static_cast<int>(templates.size());
    space.template_of.push_back(templates.emplace(candidate.kernel_template, next).first->second);
  }
  for (const Choice& choice : warm_starts) {
    const auto found = find_warm_start(list, choice);
    if (!found || *found == space.default_index) continue;
    if (std::ranges::find(space.warm_starts, *found) == space.warm_starts.end()) {
      space.warm_starts.push_back(*found);
    }
  }
  return space;
}

}  // namespace kernwright
