#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/device_use.h"
#include "device/timer_check.h"
#include "model/candidate/candidate.h"
#include "model/candidate/device_profile.h"
#include "model/result/counters.h"
#include "model/result/evidence.h"
#include "model/result/measurement.h"
#include <kernwright/result.h>

namespace kernwright {

using DevicePointer = std::uint64_t;

/// Device memory, freed on destruction. Move-only.
class DeviceBuffer {
 public:
  virtual ~DeviceBuffer() = default;
  virtual DevicePointer address() const = 0;
  virtual std::int64_t bytes() const = 0;
};

/// A cubin that is loaded for one execution plan: its functions are resolved, their attributes set,
/// and limits checked. Loading depends on no context; launching uses the calling thread's current
/// context.
class LoadedProgram {
 public:
  virtual ~LoadedProgram() = default;
};

/// The arguments of one launch of an execution plan, in the order of the operation: one address per
/// tensor of the plan (0 if the problem does not have it), one value per scalar, and the workspace
/// buffer. Only plans of reference kernels have `references` and `magnitudes`: by tensor index, the
/// float buffer of each tensor that the kernel writes (0 elsewhere).
struct LaunchArguments {
  std::vector<DevicePointer> tensors;
  std::vector<double> scalars;
  DevicePointer workspace = 0;
  std::vector<DevicePointer> references;
  std::vector<DevicePointer> magnitudes;
};

/// One launch of a program.
struct ProgramLaunch {
  const LoadedProgram* program = nullptr;
  LaunchArguments arguments;
};

/// Launches that follow each other and are timed as one.
using WorkUnit = std::vector<ProgramLaunch>;

/// The identity of a live device, for the audit and for records.
struct DeviceIdentity {
  std::string uuid;
  std::string driver_version;
  int ordinal = 0;
};

/// A GPU, real or fake: memory, loading, launching and timing. `Runner`s are written against this
/// interface. Used by one thread at a time. The error of a failed call names the driver's function
/// and error. After an illegal address or a failed launch every later call fails (`lost()` is
/// true).
class Device {
 public:
  virtual ~Device() = default;

  virtual const DeviceProfile& profile() const = 0;
  virtual const DeviceIdentity& identity() const = 0;

  virtual Result<std::unique_ptr<DeviceBuffer>> allocate(std::int64_t bytes) = 0;
  /// Allocates whole pages, at least `bytes`, between unmapped addresses, so that an access beyond
  /// either end faults.
  virtual Result<std::unique_ptr<DeviceBuffer>> allocate_fenced(std::int64_t bytes) = 0;
  virtual Result<void> upload(DevicePointer to, std::span<const std::byte> from) = 0;
  virtual Result<void> download(std::span<std::byte> to, DevicePointer from) = 0;
  /// Fills in stream order, without waiting.
  virtual Result<void> fill(DevicePointer to, std::uint8_t value, std::int64_t bytes) = 0;

  /// Loads `cubin` and resolves the plan's kernels. The plan is copied.
  virtual Result<std::shared_ptr<LoadedProgram>> load(std::string_view cubin,
                                                      const ExecutionPlan& plan) = 0;

  /// Launches the program's plan once, in stream order, without waiting. Zeroes the workspaces that
  /// the plan says must be zeroed. If a running kernel fails, a later call returns the error. With
  /// `ahead` the program starts as in a chain: early, and reading ahead if it can. Work that may
  /// still run then must not write what it reads.
  virtual Result<void> enqueue(const LoadedProgram& program, const LaunchArguments& arguments,
                               bool ahead = false) = 0;
  /// Does the same on a second stream, at the same time as the work of the first one.
  virtual Result<void> enqueue_beside(const LoadedProgram& program,
                                      const LaunchArguments& arguments) = 0;
  /// Waits until both streams are empty.
  virtual Result<void> wait() = 0;
  /// Calls `enqueue` and `wait`.
  Result<void> run(const LoadedProgram& program, const LaunchArguments& arguments) {
    if (Result<void> enqueued = enqueue(program, arguments); !enqueued) return enqueued;
    return wait();
  }

  /// A graph of `units` units of work for timing. It repeats `sets` in turn; they have arguments of
  /// their own, so that the L2 can be cold for each. Destroy it before the programs.
  class TimedUnits {
   public:
    virtual ~TimedUnits() = default;
    int replays = 1;  ///< of the graph in one sample
  };
  virtual Result<std::unique_ptr<TimedUnits>> prepare_timing(std::span<const WorkUnit> sets,
                                                             int units) = 0;
  /// Does the same for units of one launch of `program`.
  Result<std::unique_ptr<TimedUnits>> prepare_timing(const LoadedProgram& program,
                                                     std::span<const LaunchArguments> arguments,
                                                     int units) {
    std::vector<WorkUnit> sets;
    for (const LaunchArguments& set : arguments) sets.push_back({{&program, set}});
    return prepare_timing(sets, units);
  }

  /// Takes one sample: replays the graph between two events, with a clock stamp before the first
  /// and after the second.
  virtual Result<Sample> sample(TimedUnits& units) = 0;

  /// Times launches of the program on every launch path, for about so many seconds, and waits. On
  /// each path the sets are used in turn, so that the paths find the L2 in the same state.
  virtual Result<LaunchTimes> time_launch_paths(const LoadedProgram& program,
                                                std::span<const LaunchArguments> sets,
                                                double seconds) = 0;

  /// Counts what the hardware does in one launch of the program. The program is launched several
  /// times, each time after `before`, which brings the L2 into the state that the launch must find,
  /// and waits. The set has no choice yet. A device that has counted times kernels under a profiler
  /// from then on. Errors: `unavailable` with the remedy if there is no profiler, or it may not
  /// count.
  virtual Result<CounterSet> count(const LoadedProgram& program, const LaunchArguments& arguments,
                                   const std::function<Result<void>()>& before) = 0;

  /// Returns how the timers agreed in the samples since the last call.
  virtual TimerCheck take_timer_check() = 0;

  /// Returns when the device had work since the last call.
  virtual DeviceUse take_use() = 0;

  /// Returns true after an error that poisons the context.
  virtual bool lost() const = 0;
  /// Returns what the last failed call means for the candidate that made it.
  virtual Outcome last_failure() const = 0;
};

}  // namespace kernwright
