#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "device/driver.h"
#include <kernwright/result.h>

namespace kernwright {

/// One way to launch, with what it cost in each round.
struct LaunchPath {
  std::string name;
  std::function<Result<void>()> launch;  ///< once, on the stream that is timed

  std::vector<double> host_us;    ///< the calling thread's time per launch
  std::vector<double> period_us;  ///< of launches back to back, until the device has finished

  double median_host_us() const;
  double median_period_us() const;
};

/// Times the paths in turn, `rounds` of each, starting with another one each round; what they held
/// before is dropped. Host times are those of
/// up to 32 launches in a row on an empty stream, so that its queue does not fill; periods those of
/// up to 512, or 20 ms.
/// The stream's context is current.
Result<void> time_paths(const DriverApi& api, CUstream stream, std::span<LaunchPath> paths,
                        int rounds);

/// The middle of paired differences, `ours` minus `peer`, of the host's times.
double median_difference_us(const LaunchPath& ours, const LaunchPath& peer);

}  // namespace kernwright
