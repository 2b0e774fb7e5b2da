#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "device/driver/driver.h"
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

/// How long paths are timed: for so many rounds, or until so many seconds are over and at least
/// once.
struct PathTiming {
  int rounds = 1;
  double seconds = std::numeric_limits<double>::infinity();
  double train_us = 20'000;  ///< of launches back to back, at most 512
};

/// Times the paths in turn, starting with another one each round; what they held before is dropped.
/// Host times are those of up to 32 launches in a row on an empty stream, so that its queue does
/// not fill. The stream's context is current.
Result<void> time_paths(const DriverApi& api, CUstream stream, std::span<LaunchPath> paths,
                        const PathTiming& timing);

/// The path of the shortest period, or, of those that tie with it, that of the least host time, or,
/// of those that tie there too, the first. Those tie that take longer by at most 5 %, or by no more
/// than the rounds can tell: four standard errors of the paired differences, from their median
/// deviation.
std::size_t best_path(std::span<const LaunchPath> paths);

/// The middle of paired differences, `ours` minus `peer`, of the host's times.
double median_difference_us(const LaunchPath& ours, const LaunchPath& peer);

}  // namespace kernwright
