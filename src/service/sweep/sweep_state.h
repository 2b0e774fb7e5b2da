#pragma once

#include <span>

#include "cache/layers/tiered_cache.h"

namespace kernwright {

/// The state of one problem in the cache, as a sweep finds it.
struct SweepState {
  const GradedRecord* settled = nullptr;  ///< answers for the problem; null: it is due
  bool provisional = false;               ///< due, although it was measured: with trust C
};

/// Returns the state of a problem whose records are `known`, best first, for a sweep that can make
/// records of grade `wanted`. A record that was made with another compiler or another text of the
/// template is due again. One that was made with another driver or version of kernwright is not,
/// unless `recheck` asks for it. If a prediction is wanted, a measured record settles the problem,
/// whatever its trust.
SweepState sweep_state(std::span<const GradedRecord> known, RecordGrade wanted,
                       bool recheck = false);

}  // namespace kernwright
