#include "tuner/references.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "tuner/rounds.h"

namespace kernwright {
namespace {

constexpr std::size_t kUsual = 64;  ///< samples that make the usual time
constexpr std::size_t kEnough = 8;
constexpr std::size_t kLatest = 3;
/// What lies within so many median absolute deviations of single samples is noise.
constexpr double kNoise = 3;

double median_of(const std::deque<double>& values) {
  return median({values.begin(), values.end()});
}

void append(std::deque<double>& values, double value, std::size_t most) {
  values.push_back(value);
  if (values.size() > most) values.pop_front();
}

}  // namespace

void References::add(Runner::Id reference, double us) {
  Series& series = series_[reference == Runner::kSmReference ? 0 : 1];
  append(series.latest, std::log(us), kLatest);
  if (!frozen_) append(series.usual, std::log(us), kUsual);
}

double References::Series::deviation() const {
  return usual.size() < kEnough ? 0 : median_of(latest) - median_of(usual);
}

double References::Series::spread() const {
  const double middle = median_of(usual);
  std::vector<double> deviations;
  for (const double value : usual) deviations.push_back(std::abs(value - middle));
  return median(std::move(deviations));
}

bool References::off_by(double share) const {
  return std::any_of(series_.begin(), series_.end(), [&](const Series& series) {
    return series.usual.size() >= kEnough &&
           std::abs(series.deviation()) > std::max(share, kNoise * series.spread());
  });
}

double References::drift() const {
  const double sm = series_[0].deviation();
  const double dram = series_[1].deviation();
  if (sm * dram <= 0) return 0;
  return std::abs(sm) < std::abs(dram) ? sm : dram;
}

}  // namespace kernwright
