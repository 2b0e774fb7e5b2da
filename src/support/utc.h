#pragma once

#include <string>

namespace kernwright {

/// Returns the time now in UTC, as ISO 8601 to the second. Such texts sort like their times.
std::string utc_now();

}  // namespace kernwright
