#pragma once

#include <filesystem>

#include <kernwright/result.h>

namespace kernwright {

/// Finds the path of the tool, `kernwright`, whose hidden commands are our other processes. It is
/// `given` unless that is empty. Otherwise it is looked for beside the running program, beside this
/// library, and in the `bin` folder next to either. Errors: `unavailable` with the places.
Result<std::filesystem::path> find_tool(const std::filesystem::path& given);

}  // namespace kernwright
