#include "tuner/search/survivors.h"

#include <algorithm>
#include <utility>

#include "support/statistics.h"

namespace kernwright {

void Survivors::insert(Survivor survivor) {
  survivor.score_us = median(survivor.samples_us);
  const auto place = std::upper_bound(
      all_.begin(), all_.end(), survivor, [](const Survivor& a, const Survivor& b) {
        return std::pair(a.score_us, a.candidate) < std::pair(b.score_us, b.candidate);
      });
  all_.insert(place, std::move(survivor));
  if (all_.size() > kLoaded) unload(all_[kLoaded]);
}

Survivor Survivors::take(std::size_t candidate) {
  const auto found = std::find_if(all_.begin(), all_.end(), [&](const Survivor& survivor) {
    return survivor.candidate == candidate;
  });
  Survivor taken = std::move(*found);
  all_.erase(found);
  return taken;
}

void Survivors::unload(Survivor& survivor) const {
  if (survivor.id >= 0) runner_.drop(std::exchange(survivor.id, -1));
}

void Survivors::unload_all() {
  for (Survivor& survivor : all_) unload(survivor);
}

void Survivors::keep_loaded() {
  std::erase_if(all_, [](const Survivor& survivor) { return survivor.id < 0; });
}

}  // namespace kernwright
