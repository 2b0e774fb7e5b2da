#include "tuner/candidates/search_space.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <unordered_map>

#include "tuner/cost/cost_models.h"
#include "tuner/learning/feature_columns.h"

namespace kernwright {
namespace {

/// A warm start that is not valid here is replaced by one that differs in at most so many
/// parameters.
constexpr std::size_t kMostDifferences = 2;

double product(const Extent3& extent) {
  return static_cast<double>(extent[0]) * extent[1] * extent[2];
}

double share(double part, std::int64_t whole) {
  return part / static_cast<double>(std::max<std::int64_t>(whole, 1));
}

void add_features(const Candidate& candidate, double predicted_us, const DeviceProfile& profile,
                  FeatureColumns& columns) {
  columns.begin_row();
  for (const auto& [name, value] : candidate.scope.entries()) {
    columns.set(name, static_cast<double>(value));
  }
  const LaunchPlan& launch = detail::main_launch(candidate);
  const double blocks = product(launch.grid);
  const auto resident = static_cast<double>(detail::resident_blocks(candidate, profile, 0));
  const double waves = share(blocks / resident, profile.sm_count);
  columns.set("launch blocks", blocks);
  columns.set("launch threads", product(launch.block));
  columns.set("launch shared memory", share(launch.dynamic_smem, profile.smem_per_block_optin));
  columns.set("launch resident blocks", resident);
  columns.set("launch waves", waves);
  columns.set("launch idle tail", std::ceil(waves) - waves);
  columns.set("predicted", predicted_us);
}

/// In how many parameters they differ; nothing where they are of different templates.
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

SearchSpace make_search_space(const CandidateList& list, const DeviceProfile& profile,
                              std::span<const Choice> warm_starts) {
  SearchSpace space;
  space.predicted_us = list.predicted_us;
  space.group_of = list.group_of;
  space.default_index = list.default_index;
  std::unordered_map<const KernelTemplate*, int> templates;
  FeatureColumns columns;
  for (std::size_t i = 0; i < list.candidates.size(); ++i) {
    const Candidate& candidate = list.candidates[i];
    space.configurations.push_back(&candidate.configuration);
    const int next = static_cast<int>(templates.size());
    space.template_of.push_back(templates.emplace(candidate.kernel_template, next).first->second);
    add_features(candidate, list.predicted_us[i], profile, columns);
    columns.set("template", space.template_of.back());
  }
  space.features = columns.take();
  for (const Choice& choice : warm_starts) {
    const auto found = find_warm_start(list, choice);
    if (!found || *found == space.default_index) continue;
    if (std::find(space.seeds.begin(), space.seeds.end(), *found) == space.seeds.end()) {
      space.seeds.push_back(*found);
    }
  }
  return space;
}

}  // namespace kernwright
