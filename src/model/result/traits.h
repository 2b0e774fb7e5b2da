#pragma once

#include <cstdint>

#include "model/result/trial.h"

namespace kernwright {

/// The known facts of a candidate besides its times. They decide if times do not.
struct Traits {
  bool is_default = false;
  bool is_predicted = false;  ///< it is what a lookup without a record gets, see `predicted_choice`
  bool is_incumbent = false;  ///< it was the winner of the record that this search replaces
  bool deterministic = true;
  bool warned = false;  ///< the compiler warned of something that costs speed
  std::int64_t workspace_bytes = 0;
  Resources resources = {};
  std::int64_t smem_bytes = 0;  ///< static and dynamic, of one block

  /// A user may have it already, so that it is replaced only by what is better.
  bool is_known_answer() const { return is_default || is_predicted || is_incumbent; }
  friend bool operator==(const Traits&, const Traits&) = default;
};

}  // namespace kernwright
