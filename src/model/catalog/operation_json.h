#pragma once

#include <nlohmann/json.hpp>

#include "model/operation/operation.h"

namespace kernwright {

/// Returns the contract of an operation for tools: dims, dtypes, flags, tensors, scalars and how it
/// is called.
nlohmann::ordered_json to_json(const Operation& operation);

}  // namespace kernwright
