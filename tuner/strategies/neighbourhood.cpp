#include "tuner/strategies/neighbourhood.h"

#include <algorithm>
#include <map>

namespace kernwright::detail {
namespace {

constexpr std::uint64_t kHashSeed = 0x6e65696768626f72U;
/// Draws of a perturbation before it gives up finding a valid one.
constexpr int kAttempts = 200;

}  // namespace

std::uint64_t Neighbourhood::mix(std::size_t parameter, std::size_t ordinal) {
  return hash_at(kHashSeed, (parameter << 20U) + ordinal);
}

Neighbourhood::Neighbourhood(const SearchSpace& space) {
  const std::size_t count = space.configurations.size();
  std::map<int, std::size_t> known;
  template_.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    template_.push_back(known.emplace(space.template_of[i], known.size()).first->second);
  }
  templates_.resize(known.size());

  std::vector<std::vector<std::vector<std::int64_t>>> lists(known.size());
  for (std::size_t i = 0; i < count; ++i) {
    const auto& values = space.configurations[i]->values();
    auto& list = lists[template_[i]];
    list.resize(values.size());
    for (std::size_t p = 0; p < values.size(); ++p) {
      // Values come in runs; most of those that are known are the last.
      if (list[p].empty() || list[p].back() != values[p].second)
        list[p].push_back(values[p].second);
    }
  }
  for (auto& of_template : lists) {
    for (auto& list : of_template) {
      std::sort(list.begin(), list.end());
      list.erase(std::unique(list.begin(), list.end()), list.end());
    }
  }
  for (std::size_t t = 0; t < lists.size(); ++t) {
    for (const auto& list : lists[t]) templates_[t].values.push_back(list.size());
  }
  offset_.reserve(count);
  hash_.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto& values = space.configurations[i]->values();
    const auto& list = lists[template_[i]];
    offset_.push_back(ordinals_.size());
    std::uint64_t hash = 0;
    for (std::size_t p = 0; p < values.size(); ++p) {
      const auto place = std::lower_bound(list[p].begin(), list[p].end(), values[p].second);
      const auto ordinal = static_cast<std::size_t>(place - list[p].begin());
      ordinals_.push_back(static_cast<std::uint16_t>(ordinal));
      hash ^= mix(p, ordinal);
    }
    hash_.push_back(hash);
    templates_[template_[i]].index.emplace(hash, i);
  }
}

std::vector<std::size_t> Neighbourhood::of(std::size_t candidate) const {
  const Template& own = templates_[template_[candidate]];
  std::vector<std::size_t> found;
  for (std::size_t p = 0; p < own.values.size(); ++p) {
    const std::size_t here = point(candidate)[p];
    const std::uint64_t without = hash_[candidate] ^ mix(p, here);
    for (std::size_t ordinal = 0; ordinal < own.values[p]; ++ordinal) {
      if (ordinal == here) continue;
      const auto other = own.index.find(without ^ mix(p, ordinal));
      if (other != own.index.end()) found.push_back(other->second);
    }
  }
  return found;
}

std::size_t Neighbourhood::perturb(std::size_t candidate, int parameters,
                                   RandomDraws& draws) const {
  const Template& own = templates_[template_[candidate]];
  if (own.values.empty()) return candidate;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::uint64_t hash = hash_[candidate];
    std::vector<std::size_t> changed;
    for (int k = 0; k < parameters; ++k) {
      const std::size_t p = draws.below(own.values.size());
      if (std::find(changed.begin(), changed.end(), p) != changed.end()) continue;
      changed.push_back(p);
      hash ^= mix(p, point(candidate)[p]) ^ mix(p, draws.below(own.values[p]));
    }
    const auto other = own.index.find(hash);
    if (other != own.index.end() && other->second != candidate) return other->second;
  }
  return candidate;
}

}  // namespace kernwright::detail
