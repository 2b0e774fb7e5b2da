#include "device/timer_check.h"

#include <cmath>

namespace kernwright {
namespace {

// The tolerated difference. The stamps are taken outside of the events, and both clocks tick in
// steps of about a microsecond.
constexpr double kShare = 0.02;
constexpr double kUs = 2;
/// Shorter samples are not compared: the launches of the stamps alone take 3 us.
constexpr double kLeastUs = 300;

}  // namespace

void TimerCheck::add(double sample_event_us, double sample_timer_us) {
  if (sample_event_us < kLeastUs) return;
  ++samples;
  const double off = std::fabs(sample_event_us - sample_timer_us);
  if (off <= kShare * sample_event_us + kUs) return;
  ++disagreed;
  if (off < std::fabs(event_us - timer_us)) return;
  event_us = sample_event_us;
  timer_us = sample_timer_us;
}

}  // namespace kernwright
