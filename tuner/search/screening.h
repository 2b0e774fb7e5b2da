#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "tuner/runner.h"
#include "tuner/search/clock_probe.h"

namespace kernwright {

/// Measures candidates as they come from the compiler, with a few samples each. Between these,
/// probe kernels show how the device drifts. It also keeps the device busy between candidates,
/// since times differ on a device that has been idle.
class Screening {
 public:
  /// Waits for the device when it starts and when it is disturbed, for at most `most_wait_seconds`
  /// at a time.
  Screening(Runner& runner, std::function<double()> clock_seconds, double most_wait_seconds = 3)
      : runner_(runner), clock_(std::move(clock_seconds)), most_wait_seconds_(most_wait_seconds) {}

  /// Runs the probes until they are steady, and returns the seconds that this took.
  Result<double> settle();

  /// A candidate's first visit: it is loaded, checked, sampled twice and checked again. The visit
  /// ends after the first sample if that is longer than `hopeless_us`.
  struct Visit {
    Runner::Id id = -1;  ///< loaded if `step` is ok; the caller drops it
    Runner::Step step;
    CheckReport check;
    std::vector<double> samples_us;
    double drift = 0;  ///< ln of how much slower the device was than it usually is
  };
  Result<Visit> visit(const Candidate& candidate, const CompiledKernel& kernel, double hopeless_us);

  /// One sample of each of `ids` and of one probe.
  Result<std::vector<Runner::Sampled>> top_up(std::span<const Runner::Id> ids);

  double drift() const { return probes_.drift(); }

  /// Returns the audit rows that lower the trust in this session.
  const Audit& audit() const { return audit_; }

 private:
  Result<std::vector<Runner::Sampled>> sample(std::span<const Runner::Id> order);
  Result<bool> steady_again();
  Runner::Id next_probe();

  Runner& runner_;
  std::function<double()> clock_;
  double most_wait_seconds_;
  ClockProbe probes_;
  int epoch_ = 0;
  bool dram_next_ = false;
  int disturbances_ = 0;
  Audit audit_;
};

}  // namespace kernwright
