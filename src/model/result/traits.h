#pragma once

#include <cstdint>

#include "model/result/trial.h"

namespace kernwright {

/// What is known of a candidate besides its times. Where times say nothing, it decides.
struct Traits {
  bool is_default = false;
  bool is_incumbent = false;  ///< it was the winner of the record that this search replaces
  bool deterministic = true;
  bool warned = false;  ///< the compiler warned of something that costs speed
  std::int64_t workspace_bytes = 0;
  Resources resources = {};
  std::int64_t smem_bytes = 0;  ///< static and dynamic, of one block
};

}  // namespace kernwright
