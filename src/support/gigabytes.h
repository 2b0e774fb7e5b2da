#pragma once

#include <string>

namespace kernwright {

/// Bytes for people, in units of 1e9: "140.4 GB", "0.004 GB".
std::string gigabytes(double bytes);

}  // namespace kernwright
