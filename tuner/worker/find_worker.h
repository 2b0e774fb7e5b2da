#pragma once

#include <filesystem>

#include <kernwright/result.h>

namespace kernwright {

/// The program that measures, `kernwright`: `given`, or where that is empty, beside the running
/// program or this library, or in the `bin` folder next to either. Errors: `unavailable` naming
/// where it was looked for.
Result<std::filesystem::path> find_worker(const std::filesystem::path& given);

}  // namespace kernwright
