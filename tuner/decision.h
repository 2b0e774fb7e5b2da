#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/evidence.h"
#include "model/trial.h"

namespace kernwright {

/// `samples[i]` and `leader[i]` were taken in the same round; both have the same, non-zero length.
Slowdown paired_slowdown(std::span<const double> samples, std::span<const double> leader);

/// One candidate of the finals.
struct Finalist {
  std::string id;
  std::vector<double> samples_us;
  Resources resources;
  std::int64_t smem_bytes = 0;  ///< static and dynamic
  bool is_default = false;
  bool warned = false;  ///< the compiler warned of something that costs speed
};

/// Who wins: the smallest median, unless others tie with it. The default ties while it is not
/// slower beyond the noise, or by less than 0.5 %; others tie within 0.5 %. Of a tie the default
/// wins, then who compiled without warnings, takes fewer registers, less shared memory, and last
/// the smaller hash of its id: a choice that does not depend on timing. `finalists` is not empty.
std::size_t choose_winner(std::span<const Finalist> finalists);

}  // namespace kernwright
