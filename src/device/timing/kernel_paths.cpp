#include "device/timing/kernel_paths.h"

#include <array>
#include <string>

#include "support/try.h"

namespace kernwright {

Result<LaunchTimes> time_kernel_paths(const DriverApi& api, CUstream stream,
                                      const KernelCalls& calls, std::size_t sets,
                                      const PathTiming& timing) {
  constexpr std::array kPaths{KernelPath::stream, KernelPath::graph, KernelPath::rebind};
  const auto path = [sets](KernelPath which, const KernelCalls::Call& call) {
    return TimedCall{.name = std::string(to_string(which)),
                     .launch =
                         [&call, sets, set = std::size_t{0}]() mutable {
                           set = (set + 1) % sets;
                           return call(set);
                         },
                     .host_us = {},
                     .period_us = {}};
  };
  std::array<TimedCall, kPaths.size()> timed{
      path(kPaths[0], calls.stream), path(kPaths[1], calls.graph), path(kPaths[2], calls.rebind)};
  KW_TRY(time_paths(api, stream, timed, timing));
  LaunchTimes paths;
  for (std::size_t i = 0; i < timed.size(); ++i) {
    paths.times.push_back({kPaths[i], timed[i].median_host_us(), timed[i].median_period_us()});
  }
  paths.best = paths.by_medians();
  return paths;
}

}  // namespace kernwright
