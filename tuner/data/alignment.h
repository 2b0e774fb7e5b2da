#pragma once

#include <cstdint>

namespace kernwright {

/// Alignment of every tensor and workspace on the device.
inline constexpr std::int64_t kAlignment = 256;

inline std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace kernwright
