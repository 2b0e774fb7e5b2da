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

/// One way to launch, with its times in each round.
struct TimedCall {
  std::string name;
  std::function<Result<void>()> launch;  ///< launches once, on the timed stream

  std::vector<double> host_us;    ///< the calling thread's time per launch
  std::vector<double> period_us;  ///< per launch of a train, until the device is done

  double median_host_us() const;
  double median_period_us() const;
};

/// The time for which paths are timed: for `rounds` rounds, or until `seconds` are over, but at
/// least one round.
struct PathTiming {
  int rounds = 1;
  double seconds = std::numeric_limits<double>::infinity();
  double train_us = 20'000;  ///< length of a train of launches, of which there are at most 512
};

/// Times the paths in turn, starting with another one in each round, and replaces the times that
/// they hold. Host times are taken over up to 32 launches in a row on an empty stream, so that its
/// queue does not fill. The stream's context must be current.
Result<void> time_paths(const DriverApi& api, CUstream stream, std::span<TimedCall> paths,
                        const PathTiming& timing);

/// Returns the median of the paired differences of host times, `ours` minus `peer`.
double median_difference_us(const TimedCall& ours, const TimedCall& peer);

}  // namespace kernwright
