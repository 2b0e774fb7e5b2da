#pragma once

#include <string>
#include <string_view>

#include "model/operation/operation.h"
#include <kernwright/result.h>

namespace kernwright {

/// Parses operation.json. `reference_source` is the text of reference.cu, which is beside it.
Result<Operation> parse_operation(std::string_view json, std::string_view file,
                                  std::string reference_source);

}  // namespace kernwright
