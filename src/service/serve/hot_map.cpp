#include "service/serve/hot_map.h"

#include <cstdint>

#include "service/serve/quick_hash.h"

namespace kernwright {

std::size_t HotMap::Hash::operator()(const Problem& problem) const noexcept {
  QuickHash hash;
  hash.add(problem.operation());
  for (const auto& [name, value] : problem.dims()) {
    hash.add(name);
    hash.add(static_cast<std::uint64_t>(value));
  }
  for (const auto& [name, value] : problem.flags()) {
    hash.add(name);
    hash.add(value);
  }
  return hash.value();
}

HotMap::Slot* HotMap::slot(const Problem& normalized) {
  if (const auto found = slots_.find(normalized); found != slots_.end()) return found->second;
  const MutexLock lock(made_mutex_);
  if (const auto found = slots_.find(normalized); found != slots_.end()) return found->second;
  return slots_.emplace(normalized, &made_.emplace_back(nullptr)).first->second;
}

}  // namespace kernwright
