#pragma once

#include <span>

#include "cache/layers/tiered_cache.h"

namespace kernwright {

/// What a sweep finds in the cache for one problem.
struct SweepState {
  const GradedRecord* settled = nullptr;  ///< answers for the problem; null: it is due
  bool provisional = false;               ///< due, although it was measured: with trust C
};

/// Of a problem whose records are `known`, best first, where records of grade `wanted` can be made.
/// A record made with another compiler or text of the template is due again; one made with another
/// driver or version of kernwright is not, unless `recheck` asks for it. A measured record settles
/// a prediction too, whatever its trust.
SweepState sweep_state(std::span<const GradedRecord> known, RecordGrade wanted,
                       bool recheck = false);

}  // namespace kernwright
