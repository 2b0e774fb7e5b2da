#pragma once

namespace kernwright {

/// How well the events' times agree with the GPU's global timer.
struct TimerCheck {
  int samples = 0;      ///< compared: those of 300 us and more
  int disagreed = 0;    ///< by more than 2 % and 2 us
  double event_us = 0;  ///< of the sample that disagreed most, and what the global timer said
  double timer_us = 0;

  void add(double sample_event_us, double sample_timer_us);
};

}  // namespace kernwright
