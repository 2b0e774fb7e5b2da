#include "device/timing/path_timer.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kUntimed = 4;
constexpr int kMaxBurst = 32;
constexpr double kBurstUs = 2'000;
constexpr int kMaxBackToBack = 512;

/// Times that differ by less count as equal, however sure the difference is. Between processes on
/// one host the difference of graph and rebind changes by as much.
constexpr double kTie = 0.05;
constexpr double kErrors = 4;
constexpr double kSigmaPerMad = 1.4826;

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

std::vector<double> differences(std::span<const double> ours, std::span<const double> peers) {
  std::vector<double> differences;
  for (std::size_t i = 0; i < std::min(ours.size(), peers.size()); ++i) {
    differences.push_back(ours[i] - peers[i]);
  }
  return differences;
}

/// Whether the rounds do not show that `ours` takes longer than `least`.
bool ties(const std::vector<double>& ours, const std::vector<double>& least) {
  std::vector<double> longer_us = differences(ours, least);
  const double estimate_us = median(longer_us);
  const auto rounds = static_cast<double>(longer_us.size());
  for (double& us : longer_us) us = std::abs(us - estimate_us);
  const double error_us = kSigmaPerMad * median(std::move(longer_us)) / std::sqrt(rounds);
  return estimate_us <= std::max(kTie * median(least), kErrors * error_us);
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

std::size_t best_path(std::span<const TimedCall> paths) {
  const auto fastest = std::ranges::min_element(paths, {}, &TimedCall::median_period_us);
  const auto is_fast = [&](const TimedCall& path) {
    return ties(path.period_us, fastest->period_us);
  };
  auto cheapest = fastest;
  for (auto path = paths.begin(); path != paths.end(); ++path) {
    if (is_fast(*path) && path->median_host_us() < cheapest->median_host_us()) cheapest = path;
  }
  const auto best = std::ranges::find_if(paths, [&](const TimedCall& path) {
    return is_fast(path) && ties(path.host_us, cheapest->host_us);
  });
  return static_cast<std::size_t>(best - paths.begin());
}

double median_difference_us(const TimedCall& ours, const TimedCall& peer) {
  return median(differences(ours.host_us, peer.host_us));
}

}  // namespace kernwright
