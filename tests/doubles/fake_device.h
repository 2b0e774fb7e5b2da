#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "device/device.h"

namespace kernwright {

/// A clock that moves only when it is set.
class ManualClock {
 public:
  double now_us() const { return now_us_; }
  void advance(double us) { now_us_ += us; }

 private:
  double now_us_ = 0;
};

/// The behaviour and the times of a program.
struct FakeBehavior {
  double time_us = 1;
  Outcome outcome =
      Outcome::ok;           ///< what `run` reports; wrong_result runs but writes nothing right
  bool wrong_ahead = false;  ///< writes nothing right if it may read ahead
};

/// A device that computes nothing. Its memory is host memory. The behaviour and the times of a
/// program come from a landscape, a function of its plan and of the text of its "cubin", in which
/// the fake compiler puts the candidate's id. Enqueued work is done at once. Plans without tensors
/// do not change memory. Deterministic.
struct FakeDeviceOptions {
  DeviceProfile profile;
  /// The behaviour of the program with the code `cubin` and the plan `plan`.
  std::function<FakeBehavior(std::string_view cubin, const ExecutionPlan& plan)> landscape;
  /// Computes a correct run's effect on memory. Optional: by default outputs are filled with 1.
  std::function<void(const ExecutionPlan& plan, const LaunchArguments& arguments)> compute;
  /// Returns true if a launch of a plan with these arguments reaches an unmapped address.
  std::function<bool(const ExecutionPlan& plan, const LaunchArguments& arguments)> faults;
  /// The SM clock of a sample at a given time. Programs take their time at 1980 MHz, and longer
  /// below.
  std::function<double(double seconds)> sm_mhz = [](double) { return 1980; };
  double timer_error = 0;  ///< of the global timer against the events, relative
  /// Returns the counters of a launch of a plan. Optional: by default there is no profiler.
  std::function<Result<CounterSet>(const ExecutionPlan& plan)> counters;
  double noise = 0;  ///< relative amplitude of the deterministic jitter of samples
  std::uint64_t seed = 1;
};

std::unique_ptr<Device> make_fake_device(FakeDeviceOptions options, ManualClock& clock);

}  // namespace kernwright
