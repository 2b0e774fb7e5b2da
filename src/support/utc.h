#pragma once

#include <string>

namespace kernwright {

/// Now, in UTC, ISO 8601, to the second: texts that sort as their times do.
std::string utc_now();

}  // namespace kernwright
