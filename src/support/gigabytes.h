#pragma once

#include <string>

namespace kernwright {

/// Returns a number of bytes as text for people, in units of 1e9: "140.4 GB", "0.004 GB".
std::string gigabytes(double bytes);

}  // namespace kernwright
