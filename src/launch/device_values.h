#pragma once

#include <cstdint>
#include <span>

#include "model/operation/operation.h"
#include <kernwright/result.h>

namespace kernwright {

/// Checks the elements of a tensor whose values its operation restricts. `counts` are the elements
/// of the tensor that says how much of each row counts, and `rows` those of the tensor that names
/// these rows, which are legal; both are empty without one. Errors: `invalid_argument`, which names
/// the first element that is wrong, its value and the values that it may have.
Result<void> check_values(const TensorShape& tensor, std::span<const std::int64_t> values,
                          std::span<const std::int64_t> counts, std::span<const std::int64_t> rows);

}  // namespace kernwright
