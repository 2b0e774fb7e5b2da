#include "device/timer_check.h"

#include <cmath>

namespace kernwright {
namespace {

// The stamps stand outside of the events, and either clock ticks in steps of about a microsecond.
constexpr double kShare = 0.02;
constexpr double kUs = 2;
/// The stamps' own launches take 3 us, which is much of a shorter sample.
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
