#pragma once

#include <string>
#include <string_view>

#include "model/operation/operation.h"
#include <kernwright/result.h>

namespace kernwright {

/// Parses operation.json. `reference_source` is the text of reference.cu, which is beside it. With
/// `bind_cases` every text of a case must bind, which takes many times as long as all else.
Result<Operation> parse_operation(std::string_view json, std::string_view file,
                                  std::string reference_source, bool bind_cases = true);

}  // namespace kernwright
