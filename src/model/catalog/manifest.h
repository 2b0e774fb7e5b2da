#pragma once

#include <span>
#include <string_view>

#include "model/candidate/kernel_template.h"
#include "model/catalog/fragment.h"
#include "model/operation/operation.h"
#include <kernwright/result.h>

namespace kernwright {

/// Parses manifest.json, which may extend some of `fragments`, for its operation. Every name in an
/// expression must exist. The caller reads `source`, which is the text of `source_file`, and
/// `headers`. Errors name file, line and field.
Result<KernelTemplate> parse_manifest(std::string_view json, std::string_view file,
                                      std::string_view name, const Operation& operation,
                                      std::span<const Fragment> fragments = {});

}  // namespace kernwright
