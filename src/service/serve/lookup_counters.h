#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "model/result/match_names.h"
#include <kernwright/service.h>

namespace kernwright {

/// How often lookups ended in which match for which reason. A problem is counted when it is looked
/// up, not when the hot map answers: that path touches nothing shared. Thread-safe.
class LookupCounters {
 public:
  void add(Match match, MissReason reason) {
    counts_[static_cast<std::size_t>(match)][static_cast<std::size_t>(reason)].fetch_add(
        1, std::memory_order_relaxed);
  }

  /// Returns the counts that are not 0, best match first.
  std::vector<LookupCount> read() const {
    std::vector<LookupCount> read;
    for (std::size_t match = 0; match < counts_.size(); ++match) {
      for (std::size_t reason = 0; reason < counts_[match].size(); ++reason) {
        const std::uint64_t count = counts_[match][reason].load(std::memory_order_relaxed);
        if (count == 0) continue;
        read.push_back({static_cast<Match>(match), static_cast<MissReason>(reason), count});
      }
    }
    return read;
  }

 private:
  static constexpr std::size_t kMatches = names_of(Match{}).size();
  static constexpr std::size_t kReasons = names_of(MissReason{}).size();
  std::array<std::array<std::atomic<std::uint64_t>, kReasons>, kMatches> counts_{};
};

}  // namespace kernwright
