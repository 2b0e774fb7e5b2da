#pragma once

#include <cstddef>
#include <functional>

#include "device/driver/driver.h"
#include "device/timing/path_timer.h"
#include "model/result/evidence.h"
#include <kernwright/result.h>

namespace kernwright {

/// The ways to launch a kernel once on the timed stream, each with the set of arguments of a given
/// number.
struct KernelCalls {
  using Call = std::function<Result<void>(std::size_t set)>;
  Call stream;
  Call graph;   ///< an instantiated graph of that set
  Call rebind;  ///< binds the one graph of all sets to this set first
};

/// Times every path; on each the sets are used in turn. The stream's context must be current.
Result<LaunchTimes> time_kernel_paths(const DriverApi& api, CUstream stream,
                                      const KernelCalls& calls, std::size_t sets,
                                      const PathTiming& timing);

}  // namespace kernwright
