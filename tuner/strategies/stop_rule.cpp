#include "tuner/strategies/stop_rule.h"

#include <algorithm>
#include <cmath>

namespace kernwright {
namespace {

constexpr double kGain = 0.005;     ///< an improvement worth going on for
constexpr double kRoofline = 1.03;  ///< times the roofline is as good as it gets
constexpr int kPatience = 128;
constexpr double kThoroughSeconds = 120;
constexpr int kThoroughPatience = 256;

}  // namespace

StopRule::StopRule(double seconds, double roofline_us)
    : roofline_us_(roofline_us),
      patience_(seconds >= kThoroughSeconds ? kThoroughPatience : kPatience) {}

void StopRule::add(std::optional<double> us) {
  ++results_;
  if (!us) return;
  best_us_ = std::min(best_us_, *us);
  if (best_us_ > marked_us_ * (1 - kGain)) return;
  marked_us_ = best_us_;
  last_gain_ = results_;
}

std::string_view StopRule::reason() const {
  if (!std::isfinite(best_us_)) return {};
  if (roofline_us_ > 0 && best_us_ <= kRoofline * roofline_us_) return "roofline";
  return results_ - last_gain_ < patience_ ? "" : "no_improvement";
}

}  // namespace kernwright
