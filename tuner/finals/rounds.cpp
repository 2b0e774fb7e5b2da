#include "tuner/finals/rounds.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "support/statistics.h"

namespace kernwright {
namespace {

/// A probe this much above its median is slow, if that is not its noise.
constexpr double kSlowReference = 0.01;
/// In median absolute deviations: 2.7 standard deviations.
constexpr double kNoiseSpreads = 4;
/// A deviation this many times as large does not come from the clock.
constexpr double kForeign = 3;
constexpr double kLowClock = 0.97;

/// 0: normal, 1: slow, above `kForeign`: far beyond that.
std::vector<double> slowness(std::span<const Sample> probe) {
  std::vector<double> logs;
  for (const Sample& sample : probe) logs.push_back(std::log(sample.us));
  const double middle = median(logs);
  std::vector<double> deviations;
  for (double& value : logs) {
    value -= middle;
    deviations.push_back(std::abs(value));
  }
  const double slow = std::max(kSlowReference, kNoiseSpreads * median(std::move(deviations)));
  for (double& value : logs) value /= slow;
  return logs;
}

/// Returns for each round the clock relative to its usual value for the same kernels; 0 if unknown.
std::vector<double> relative_clocks(const RoundSamples& samples) {
  std::vector<std::vector<double>> rounds(samples.sm_probe.size());
  const auto add = [&](const std::vector<Sample>& series) {
    std::vector<double> clocks;
    for (const Sample& sample : series) clocks.push_back(sample.sm_mhz);
    const double usual = median(clocks);
    for (std::size_t r = 0; r < clocks.size(); ++r) {
      if (usual > 0) rounds[r].push_back(clocks[r] / usual);
    }
  };
  for (const auto& [survivor, series] : samples.of) {
    if (!series.empty()) add(series);
  }
  add(samples.sm_probe);
  std::vector<double> result;
  for (std::vector<double>& round : rounds) {
    result.push_back(round.empty() ? 0 : median(std::move(round)));
  }
  return result;
}

bool counts(const RoundSamples& samples, std::size_t round) {
  return std::find(samples.dropped.begin(), samples.dropped.end(), static_cast<int>(round)) ==
         samples.dropped.end();
}

/// Returns the rounds that count, below `size`; all of them if none does.
std::vector<std::size_t> counted(const RoundSamples& samples, std::size_t size) {
  std::vector<std::size_t> rounds;
  for (std::size_t r = 0; r < size; ++r) {
    if (counts(samples, r)) rounds.push_back(r);
  }
  if (rounds.empty()) {
    rounds.resize(size);
    std::iota(rounds.begin(), rounds.end(), std::size_t{0});
  }
  return rounds;
}

}  // namespace

void RoundSamples::drop_disturbed() {
  if (count() <= looked_at) return;
  const std::vector<double> sm = slowness(sm_probe);
  const std::vector<double> dram = slowness(dram_probe);
  const std::vector<double> clocks = relative_clocks(*this);
  for (; looked_at < count(); ++looked_at) {
    const auto round = static_cast<std::size_t>(looked_at);
    const double slow = std::max(sm[round], dram[round]);
    if (slow > kForeign || (slow > 1 && clocks[round] < kLowClock)) dropped.push_back(looked_at);
  }
}

std::vector<double> relative_medians(const RoundSamples& samples,
                                     std::span<const std::size_t> survivors) {
  std::vector<std::vector<double>> relative(survivors.size());
  std::vector<double> round(survivors.size());
  for (const std::size_t r : counted(samples, samples.sm_probe.size())) {
    for (std::size_t i = 0; i < survivors.size(); ++i) {
      round[i] = std::log(samples.of.at(survivors[i])[r].us);
    }
    const double middle = median(round);
    for (std::size_t i = 0; i < survivors.size(); ++i) relative[i].push_back(round[i] - middle);
  }
  std::vector<double> medians;
  for (std::vector<double>& series : relative) medians.push_back(median(std::move(series)));
  return medians;
}

double median_us(const RoundSamples& samples, std::size_t survivor) {
  const std::vector<Sample>& series = samples.of.at(survivor);
  std::vector<double> us;
  for (const std::size_t r : counted(samples, series.size())) us.push_back(series[r].us);
  return median(std::move(us));
}

}  // namespace kernwright
