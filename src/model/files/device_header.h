#pragma once

#include <string>
#include <string_view>

namespace kernwright {

/// A file that kernels may include by its name: `kernwright/ptx/mma.cuh`, or `tile.cuh` beside a
/// template. Its text lives as long as the catalog.
struct DeviceHeader {
  std::string name;
  std::string_view text;
};

}  // namespace kernwright
