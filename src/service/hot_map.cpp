#include "service/hot_map.h"

#include <functional>
#include <string_view>

namespace kernwright {

std::size_t HotMap::Hash::operator()(const Problem& problem) const noexcept {
  const std::hash<std::string_view> text;
  std::size_t hash = text(problem.operation());
  const auto mix = [&hash](std::size_t value) {
    hash ^= value + 0x9e3779b97f4a7c15ULL + (hash << 6) + (hash >> 2);
  };
  for (const auto& [name, value] : problem.dims()) {
    mix(text(name));
    mix(static_cast<std::size_t>(value));
  }
  for (const auto& [name, value] : problem.flags()) {
    mix(text(name));
    mix(text(value));
  }
  return hash;
}

HotMap::Slot* HotMap::slot(const Problem& normalized) {
  if (const auto found = slots_.find(normalized); found != slots_.end()) return found->second;
  const std::lock_guard lock(made_mutex_);
  if (const auto found = slots_.find(normalized); found != slots_.end()) return found->second;
  return slots_.emplace(normalized, &made_.emplace_back(nullptr)).first->second;
}

}  // namespace kernwright
