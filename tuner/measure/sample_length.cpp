#include "tuner/measure/sample_length.h"

#include <algorithm>
#include <cmath>

namespace kernwright {
namespace {

/// The limit of units in one graph; building a larger graph takes longer than its sample.
constexpr double kMaxUnits = 256;
constexpr double kMaxReplays = 4;
/// By this factor a rotation may make a sample longer.
constexpr double kLongest = 4;
constexpr double kShortestUnitUs = 0.1;

}  // namespace

SampleLength sample_length(double unit_us, double sample_us, int sets, bool once) {
  const double unit = std::max(unit_us, kShortestUnitUs);
  SampleLength length;
  if (sets * unit > kLongest * sample_us) {
    length.units = static_cast<int>(std::max(1.0, std::floor(kLongest * sample_us / unit)));
    return length;
  }
  const double wanted = std::min(sample_us / unit, kMaxUnits);
  length.units = sets * (once ? 1 : static_cast<int>(std::max(1.0, std::round(wanted / sets))));
  if (once) return length;
  const double replays = std::round(sample_us / (length.units * unit));
  length.replays = static_cast<int>(std::clamp(replays, 1.0, kMaxReplays));
  return length;
}

}  // namespace kernwright
