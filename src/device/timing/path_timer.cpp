#include "device/timing/path_timer.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kUntimed = 4;
constexpr int kMaxBurst = 32;
constexpr double kBurstUs = 2'000;
constexpr int kMaxBackToBack = 512;

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double us_per_launch(Clock::time_point begin, Clock::time_point end, int launches) {
  return std::chrono::duration<double, std::micro>(end - begin).count() / launches;
}

Result<void> repeat(const TimedCall& path, int launches) {
  for (int i = 0; i < launches; ++i) {
    if (Result<void> launched = path.launch(); !launched) {
      return Error{launched.error().code, concat(path.name, ": ", launched.error().message)};
    }
  }
  return {};
}

Result<void> time_once(const DriverApi& api, CUstream stream, TimedCall& path, double train_us) {
  const auto synchronize = [&]() -> Result<void> {
    const DriverStatus status{"cuStreamSynchronize", api.stream_synchronize(stream)};
    if (!status) return driver_error(api, status);
    return {};
  };
  // The first launch shows whether more of them would take too long.
  double expected_us = 0;
  for (const int untimed : {1, kUntimed}) {
    const Clock::time_point begin = Clock::now();
    KW_TRY(repeat(path, untimed));
    KW_TRY(synchronize());
    expected_us = us_per_launch(begin, Clock::now(), untimed);
    if (expected_us * kUntimed > train_us) break;
  }
  const auto launches_in = [&](double us, int most) {
    return std::clamp(static_cast<int>(us / expected_us), 2, most);
  };

  const int burst = launches_in(kBurstUs, kMaxBurst);
  KW_TRY(repeat(path, 2));
  const Clock::time_point first = Clock::now();
  KW_TRY(repeat(path, burst));
  path.host_us.push_back(us_per_launch(first, Clock::now(), burst));
  KW_TRY(synchronize());

  const int many = launches_in(train_us, kMaxBackToBack);
  const Clock::time_point second = Clock::now();
  KW_TRY(repeat(path, many));
  KW_TRY(synchronize());
  path.period_us.push_back(us_per_launch(second, Clock::now(), many));
  return {};
}

}  // namespace

double TimedCall::median_host_us() const { return median(host_us); }
double TimedCall::median_period_us() const { return median(period_us); }

Result<void> time_paths(const DriverApi& api, CUstream stream, std::span<TimedCall> paths,
                        const PathTiming& timing) {
  for (TimedCall& path : paths) {
    path.host_us.clear();
    path.period_us.clear();
  }
  const Clock::time_point begin = Clock::now();
  for (int round = 0; round < timing.rounds; ++round) {
    const std::chrono::duration<double> elapsed = Clock::now() - begin;
    if (round > 0 && elapsed.count() >= timing.seconds) break;
    for (std::size_t i = 0; i < paths.size(); ++i) {
      TimedCall& path = paths[(i + static_cast<std::size_t>(round)) % paths.size()];
      KW_TRY(time_once(api, stream, path, timing.train_us));
    }
  }
  return {};
}

double median_difference_us(const TimedCall& ours, const TimedCall& peer) {
  std::vector<double> differences;
  for (std::size_t i = 0; i < std::min(ours.host_us.size(), peer.host_us.size()); ++i) {
    differences.push_back(ours.host_us[i] - peer.host_us[i]);
  }
  return median(std::move(differences));
}

}  // namespace kernwright
