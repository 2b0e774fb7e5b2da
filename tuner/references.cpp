#include "tuner/references.h"

#include <algorithm>
#include <cmath>

#include "tuner/rounds.h"

namespace kernwright {
namespace {

constexpr std::size_t kUsual = 64;  ///< samples that make the usual time
constexpr std::size_t kEnough = 8;
constexpr std::ptrdiff_t kLatest = 3;

}  // namespace

void References::add(Runner::Id reference, double us) {
  Series& series = series_[reference == Runner::kSmReference ? 0 : 1];
  series.push_back(std::log(us));
  if (series.size() > kUsual) series.pop_front();
}

double References::deviation(const Series& series) {
  if (series.size() < kEnough) return 0;
  return median({series.end() - kLatest, series.end()}) - median({series.begin(), series.end()});
}

bool References::off_by(double share) const {
  return std::any_of(series_.begin(), series_.end(),
                     [&](const Series& series) { return std::abs(deviation(series)) > share; });
}

double References::drift() const {
  const double sm = deviation(series_[0]);
  const double dram = deviation(series_[1]);
  if (sm * dram <= 0) return 0;
  return std::abs(sm) < std::abs(dram) ? sm : dram;
}

}  // namespace kernwright
