#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "bench/simulation/random_stream.h"
#include "model/result/measurement.h"
#include <kernwright/result.h>

namespace kernwright {

/// Episodes in which everything runs slower: at random times, and once at a given time.
struct Episodes {
  double per_second = 0;
  Range slowdown;  ///< relative: 0.05 is 5 % slower
  Range seconds;
  double first_at_seconds = std::numeric_limits<double>::infinity();
};

/// The disturbances of a simulated session. Every part is off by default. Slowdowns are relative.
struct NoiseModel {
  double sample_sigma = 0;  ///< of one sample of a candidate, lognormal
  double probe_sigma = 0;   ///< of one sample of a probe kernel
  double drift_sigma = 0;   ///< of the shared clock, an Ornstein-Uhlenbeck process
  double drift_tau_seconds = 3;
  Episodes throttle;      ///< the clock falls
  Episodes foreign_load;  ///< everything is slower at the same clock
  double outlier_share = 0;
  Range outlier_slowdown{0.05, 0.20};
  /// First samples after the device was idle: too slow if positive, too fast (boost) if negative,
  /// each candidate by half of it to all of it.
  double transient = 0;
  double transient_samples = 3;  ///< after which it has fallen to 1/e
  /// Candidates that draw more power than the device may: alone they slow down by so much. The
  /// clock is the device's and follows what it draws on average, so those that take turns share
  /// one, whoever it is that draws too much.
  double power_step_share = 0;
  bool best_steps = false;  ///< the fastest one does so for certain
  Range power_step{0.05, 0.17};
  /// Until the clock has followed to 1/e: an H200's did so 4 to 32 ms after a kernel began.
  double power_lag_seconds = 0.02;
  double tick_us = 0;        ///< of the event timer; its error is divided by the units of a sample
  double failure_share = 0;  ///< of candidates, with a random outcome
  std::vector<double> restarts_at_seconds;  ///< the measuring process dies and a new one starts
  double restart_sigma = 0;                 ///< of how much a new process changes each candidate
};

/// Reads parts joined by '+', each with a number if the default does not do:
/// "samples=0.5+drift=1+throttle". Shares and slowdowns are in percent.
///   samples  drift  throttle (episodes per second)  load (same)  outliers  transient  power_steps
///   best_step  power_lag (seconds)  tick (us)  failures  restart (at seconds)  process (how much a
///   new process changes each candidate); "none" is no noise at all.
/// Errors: `invalid_argument` naming the part and the parts there are.
Result<NoiseModel> parse_noise(std::string_view text);

/// The device of one session: what its clock and its foreign load do over time. Times asked for
/// never go backwards. Deterministic by seed.
class DeviceNoise {
 public:
  DeviceNoise(const NoiseModel& model, std::uint64_t seed);

  struct State {
    double clock = 1;  ///< of nominal
    double load = 1;   ///< times as slow because of others
  };
  State at(double seconds);
  /// By how much the power limit slows down everything over the next `seconds`, on average, while a
  /// kernel runs that alone would be slowed down by `step`; 0 while nothing runs.
  double run(double step, double seconds);

 private:
  /// Walks through the episodes of one kind.
  class Walk {
   public:
    Walk(const Episodes& episodes, std::uint64_t seed);
    double slowdown_at(double seconds);

   private:
    void begin_next(double after);

    Episodes episodes_;
    RandomStream random_;
    double start_ = 0;
    double end_ = 0;
    double slowdown_ = 0;
  };

  double sigma_;
  double tau_seconds_;
  RandomStream random_;
  double last_seconds_ = 0;
  double drift_ = 0;
  double lag_seconds_;
  double power_slowdown_ = 0;
  Walk throttle_;
  Walk load_;
};

/// The lasting effect of a session's noise on one candidate.
struct CandidateNoise {
  double power_step = 0;  ///< 0: never
  double transient = 0;
  Outcome failure = Outcome::ok;
  int failure_at_sample = -1;  ///< -1: when it is loaded or checked

  static CandidateNoise draw(const NoiseModel& model, std::uint64_t seed, std::size_t candidate,
                             bool best);
};

}  // namespace kernwright
