#include "device/path_timer.h"

#include <algorithm>
#include <chrono>

#include "support/text.h"

namespace kernwright {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kUntimed = 4;
constexpr int kMaxBurst = 32;
constexpr double kBurstUs = 2'000;
constexpr int kMaxBackToBack = 512;
constexpr double kBackToBackUs = 20'000;

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double us_per_launch(Clock::time_point begin, Clock::time_point end, int launches) {
  return std::chrono::duration<double, std::micro>(end - begin).count() / launches;
}

Result<void> repeat(const LaunchPath& path, int launches) {
  for (int i = 0; i < launches; ++i) {
    if (Result<void> launched = path.launch(); !launched) {
      return Error{launched.error().code, concat(path.name, ": ", launched.error().message)};
    }
  }
  return {};
}

Result<void> time_once(const DriverApi& api, CUstream stream, LaunchPath& path) {
  const auto synchronize = [&]() -> Result<void> {
    const DriverStatus status{"cuStreamSynchronize", api.stream_synchronize(stream)};
    if (!status) return driver_error(api, status);
    return {};
  };
  const Clock::time_point begin = Clock::now();
  if (Result<void> done = repeat(path, kUntimed); !done) return done;
  if (Result<void> done = synchronize(); !done) return done;
  const double expected_us = us_per_launch(begin, Clock::now(), kUntimed);
  const auto launches_in = [&](double us, int most) {
    return std::clamp(static_cast<int>(us / expected_us), 2, most);
  };

  const int burst = launches_in(kBurstUs, kMaxBurst);
  if (Result<void> done = repeat(path, 2); !done) return done;
  const Clock::time_point first = Clock::now();
  if (Result<void> done = repeat(path, burst); !done) return done;
  path.host_us.push_back(us_per_launch(first, Clock::now(), burst));
  if (Result<void> done = synchronize(); !done) return done;

  const int many = launches_in(kBackToBackUs, kMaxBackToBack);
  const Clock::time_point second = Clock::now();
  if (Result<void> done = repeat(path, many); !done) return done;
  if (Result<void> done = synchronize(); !done) return done;
  path.period_us.push_back(us_per_launch(second, Clock::now(), many));
  return {};
}

}  // namespace

double LaunchPath::median_host_us() const { return median(host_us); }
double LaunchPath::median_period_us() const { return median(period_us); }

Result<void> time_paths(const DriverApi& api, CUstream stream, std::span<LaunchPath> paths,
                        int rounds) {
  for (LaunchPath& path : paths) {
    path.host_us.clear();
    path.period_us.clear();
  }
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < paths.size(); ++i) {
      LaunchPath& path = paths[(i + static_cast<std::size_t>(round)) % paths.size()];
      if (Result<void> timed = time_once(api, stream, path); !timed) return timed;
    }
  }
  return {};
}

double median_difference_us(const LaunchPath& ours, const LaunchPath& peer) {
  std::vector<double> differences;
  for (std::size_t i = 0; i < std::min(ours.host_us.size(), peer.host_us.size()); ++i) {
    differences.push_back(ours.host_us[i] - peer.host_us[i]);
  }
  return median(std::move(differences));
}

}  // namespace kernwright
