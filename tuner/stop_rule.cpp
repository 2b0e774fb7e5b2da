#include "tuner/stop_rule.h"

#include <algorithm>
#include <cmath>

namespace kernwright {
namespace {

constexpr double kGain = 0.005;     ///< an improvement worth going on for
constexpr double kOpenGain = 0.01;  ///< what the model must promise to go on
constexpr double kRoofline = 1.03;  ///< times the roofline is as good as it gets
constexpr int kLeastResults = 48;
constexpr double kFullSeconds = 120;  ///< from here on a search is to be thorough
constexpr int kFullResults = 256;

struct Patience {
  double seconds;
  double results;
};
constexpr Patience kPatience[] = {{15, 48}, {30, 64}, {kFullSeconds, 128}};

/// Linear between the rows, constant outside.
int patience_of(double seconds) {
  double results = kPatience[0].results;
  for (std::size_t i = 1; i < std::size(kPatience); ++i) {
    const Patience& low = kPatience[i - 1];
    const Patience& high = kPatience[i];
    const double share =
        std::clamp((seconds - low.seconds) / (high.seconds - low.seconds), 0.0, 1.0);
    results += share * (high.results - low.results);
  }
  return static_cast<int>(std::lround(results));
}

}  // namespace

StopRule::StopRule(double seconds, double roofline_us)
    : roofline_us_(roofline_us),
      patience_(patience_of(seconds)),
      least_results_(seconds >= kFullSeconds ? kFullResults : kLeastResults) {}

void StopRule::add(std::optional<double> us) {
  ++results_;
  if (!us) return;
  best_us_ = std::min(best_us_, *us);
  if (best_us_ > marked_us_ * (1 - kGain)) return;
  marked_us_ = best_us_;
  last_gain_ = results_;
}

std::string_view StopRule::reason(std::optional<double> optimistic_us) const {
  if (!std::isfinite(best_us_)) return {};
  if (roofline_us_ > 0 && best_us_ <= kRoofline * roofline_us_) return "roofline";
  if (results_ < least_results_ || results_ - last_gain_ < patience_) return {};
  if (optimistic_us && *optimistic_us < best_us_ * (1 - kOpenGain)) return {};
  return "no_improvement";
}

double regret_estimate(double best_us, std::optional<double> optimistic_us) {
  if (!optimistic_us || *optimistic_us <= 0) return 0;
  return std::max(0.0, best_us / *optimistic_us - 1);
}

}  // namespace kernwright
