#pragma once

#include <cstdint>
#include <span>

#include "model/operation/operation.h"
#include <kernwright/result.h>

namespace kernwright {

/// Checks the elements of a tensor whose values its operation restricts. `counts` are the elements
/// of the tensor that says how much of each row counts, and empty without one. Errors:
/// `invalid_argument`, which names the first element that is wrong, its value and the values that
/// it may have.
Result<void> check_values(const TensorShape& tensor, std::span<const std::int64_t> values,
                          std::span<const std::int64_t> counts);

}  // namespace kernwright
