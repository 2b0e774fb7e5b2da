#include "tuner/search/clock_probe.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "support/statistics.h"

namespace kernwright {
namespace {

constexpr std::size_t kUsual = 64;  ///< samples that make the usual time
constexpr std::size_t kEnough = 8;
constexpr std::size_t kLatest = 3;
/// A difference within so many median absolute deviations of single samples is noise.
constexpr double kNoise = 3;

double median_of(const std::deque<double>& values) {
  return median({values.begin(), values.end()});
}

void append(std::deque<double>& values, double value, std::size_t most) {
  values.push_back(value);
  if (values.size() > most) values.pop_front();
}

}  // namespace

void ClockProbe::add(Runner::Id probe, const Sample& sample) {
  if (probe == Runner::kDramProbe) {
    add(dram_, sample.us);
  } else {
    add(sm_, sample.us);
    add(sm_cycles_, sample.sm_mhz > 0 ? sample.us * sample.sm_mhz : sample.us);
  }
}

void ClockProbe::add(Series& series, double value) const {
  append(series.latest, std::log(value), kLatest);
  if (!frozen_) append(series.usual, std::log(value), kUsual);
}

double ClockProbe::Series::deviation() const {
  return usual.size() < kEnough ? 0 : median_of(latest) - median_of(usual);
}

double ClockProbe::Series::spread() const {
  const double middle = median_of(usual);
  std::vector<double> deviations;
  for (const double value : usual) deviations.push_back(std::abs(value - middle));
  return median(std::move(deviations));
}

bool ClockProbe::off_by(double share) const {
  const auto off = [share](const Series& series) {
    return series.usual.size() >= kEnough &&
           std::abs(series.deviation()) > std::max(share, kNoise * series.spread());
  };
  return off(sm_cycles_) || off(dram_);
}

double ClockProbe::drift() const {
  const double sm = sm_.deviation();
  const double dram = dram_.deviation();
  if (sm * dram <= 0) return 0;
  return std::abs(sm) < std::abs(dram) ? sm : dram;
}

}  // namespace kernwright
