#pragma once

namespace kernwright {

/// The agreement of the times of events with the GPU's global timer.
struct TimerCheck {
  int samples = 0;      ///< samples of 300 us and more, which are compared
  int disagreed = 0;    ///< samples that differ by more than 2 % and 2 us
  double event_us = 0;  ///< the events' time of the sample that differs most
  double timer_us = 0;  ///< the global timer's time of that sample

  void add(double sample_event_us, double sample_timer_us);
};

}  // namespace kernwright
