#include "bench/simulation/bare_candidates.h"

#include <algorithm>
#include <set>
#include <utility>

namespace kernwright {

BareCandidates::BareCandidates(const RecordedSpace& space) {
  for (std::size_t t = 0; t < space.templates.size(); ++t) {
    auto bare = std::make_unique<KernelTemplate>();
    bare->name = space.templates[t];
    bare->operation = space.kernel;
    std::vector<std::pair<std::string, std::set<std::int64_t>>> values;
    for (const RecordedConfiguration& recorded : space.configurations) {
      if (static_cast<std::size_t>(recorded.kernel_template) != t) continue;
      // A candidate that was recorded as ok was allowed its spills.
      if (recorded.outcome == Outcome::ok) {
        bare->allowed_spill_bytes =
            std::max<std::int64_t>(bare->allowed_spill_bytes, recorded.spill_bytes);
      }
      const auto& point = recorded.configuration.values();
      values.resize(point.size());
      for (std::size_t i = 0; i < point.size(); ++i) {
        values[i].first = point[i].first;
        values[i].second.insert(point[i].second);
      }
    }
    std::vector<Parameter> parameters;
    for (auto& [name, seen] : values) {
      parameters.push_back({.name = std::move(name), .values = {seen.begin(), seen.end()}});
    }
    bare->space = ParameterSpace(std::move(parameters));
    templates_.push_back(std::move(bare));
  }
  candidates_.reserve(space.configurations.size());
  index_.reserve(space.configurations.size());
  for (const RecordedConfiguration& recorded : space.configurations) {
    Candidate candidate;
    candidate.kernel_template =
        templates_[static_cast<std::size_t>(recorded.kernel_template)].get();
    candidate.configuration = recorded.configuration;
    index_.emplace(candidate.id(), candidates_.size());
    candidates_.push_back(std::move(candidate));
  }
}

std::optional<std::size_t> BareCandidates::find(std::string_view id) const {
  const auto found = index_.find(std::string(id));
  if (found == index_.end()) return std::nullopt;
  return found->second;
}

}  // namespace kernwright
