#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compile/compile_request.h"
#include "device/device_use.h"
#include "model/candidate/candidate.h"
#include "model/result/evidence.h"
#include "model/result/measurement.h"
#include <kernwright/result.h>

namespace kernwright {

/// Measures the candidates of one problem, one after another. Implementations: on a device in this
/// process, in a worker process, from a recording, synthetic. Used by one thread. A candidate's
/// failure is an `Outcome`; an `Error` means that the runner itself cannot go on.
class Runner {
 public:
  using Id = int;

  /// Two kernels of the runner's own, never tuned, that `sample` takes like candidates: they show
  /// how the device drifts. One is bound by the SMs' arithmetic, one by DRAM.
  static constexpr Id kSmReference = -2;
  static constexpr Id kDramReference = -3;

  /// What happened to one candidate in one step.
  struct Step {
    Outcome outcome = Outcome::ok;
    std::string detail;
  };

  virtual ~Runner() = default;

  /// Loads the candidate. `step.outcome` is ok or says why it cannot be launched.
  struct Prepared {
    Id id = -1;
    Step step;
  };
  virtual Result<Prepared> prepare(const Candidate& candidate, const CompiledKernel& kernel) = 0;

  /// How much proof is asked for: what every candidate passes before it is timed, or what a
  /// finalist passes besides (many repeats, memory that ends in unmapped pages).
  enum class CheckDepth { screening, finalist };

  /// Compares the candidate's results with the reference: poisoned and guarded first run, exact
  /// integer test, realistic test, repeats with identical bits. `report` is the proof, also of how
  /// far it came.
  struct Checked {
    Step step;
    CheckReport report;
  };
  virtual Result<Checked> check(Id id, CheckDepth depth) = 0;

  /// Replays what is timed once more on poisoned outputs and compares them: finds what decays with
  /// repetition.
  virtual Result<Checked> check_after_timing(Id id) = 0;

  /// One sample of every entry of `order`, one after another: candidates and references, as often
  /// as they are named. Gives one result per entry. A candidate that failed gets no further sample:
  /// its later entries repeat the step.
  struct Sampled {
    Step step;
    Sample sample;
  };
  virtual Result<std::vector<Sampled>> sample(std::span<const Id> order) = 0;

  /// Microseconds per unit of an empty kernel launched with the candidate's shapes.
  virtual Result<double> launch_gap_us(Id id) = 0;

  /// What launching the candidate costs on every launch path, on its timed buffers. Empty where
  /// nothing is launched.
  virtual Result<LaunchPaths> launch_paths(Id /*id*/) { return LaunchPaths{}; }

  /// The state of the environment in which samples were taken since the last audit.
  virtual Result<Audit> audit() = 0;

  /// When the device had work of this runner since the last call. Empty where that is not known.
  virtual DeviceUse take_use() { return {}; }

  /// Keeps a device that would stand idle at work for about so long, and comes back when that is
  /// done: its clocks stay up. Does nothing where there is no device.
  virtual void fill(double /*seconds*/) {}

  virtual void drop(Id id) = 0;

  /// Counts up when samples taken before cannot be compared with later ones (a new process).
  virtual int epoch() const { return 0; }

  /// True once the device cannot be used any more.
  virtual bool lost() const = 0;
};

}  // namespace kernwright
