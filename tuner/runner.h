#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compile/compile_request.h"
#include "device/device_use.h"
#include "model/candidate/candidate.h"
#include "model/result/counters.h"
#include "model/result/evidence.h"
#include "model/result/measurement.h"
#include "model/result/trial.h"
#include <kernwright/result.h>

namespace kernwright {

/// Measures the candidates of one problem, one after another. There are implementations for a
/// device in this process, for a worker process, for recordings and for synthetic times. Used by
/// one thread. A candidate's failure is an `Outcome`; an `Error` means that the runner itself
/// cannot go on.
class Runner {
 public:
  using Id = int;

  /// Two kernels of the runner that are never tuned, and that `sample` accepts like candidates.
  /// They show the drift of the device. One is bound by the SMs' arithmetic, one by DRAM.
  static constexpr Id kSmProbe = -2;
  static constexpr Id kDramProbe = -3;

  using Step = TrialStep;

  virtual ~Runner() = default;

  /// Loads the candidate. `step.outcome` is ok or says why it cannot be launched.
  struct Prepared {
    Id id = -1;
    Step step;
  };
  virtual Result<Prepared> prepare(const Candidate& candidate, const CompiledKernel& kernel) = 0;

  /// How thorough a check is: as for every candidate before it is timed, or as for a finalist, with
  /// many repeats and memory that ends at unmapped pages.
  enum class CheckDepth { screening, finalist };

  /// Compares the candidate's results with the reference: a first run that is poisoned and guarded,
  /// the exact test on integers, the realistic test, and repeats with identical bits. `report` says
  /// what was checked, also after a failure.
  struct Checked {
    Step step;
    CheckReport report;
  };
  virtual Result<Checked> check(Id id, CheckDepth depth) = 0;

  /// Replays the timed graph once more on poisoned outputs and compares these. It finds results
  /// that become wrong with repetition.
  virtual Result<Checked> check_after_timing(Id id) = 0;

  /// Takes one sample for every entry of `order`, one after another. Entries are candidates and
  /// probe kernels, and may repeat. Gives one result per entry. A candidate that failed gets no
  /// further sample: its later entries repeat the step.
  struct Sampled {
    Step step;
    Sample sample;
  };
  virtual Result<std::vector<Sampled>> sample(std::span<const Id> order) = 0;

  /// Microseconds per unit of an empty kernel launched with the candidate's shapes.
  virtual Result<double> launch_gap_us(Id id) = 0;

  /// Returns the candidate's times on every launch path, on its timed buffers. The result is empty
  /// if nothing is launched.
  virtual Result<LaunchTimes> launch_paths(Id /*id*/) { return LaunchTimes{}; }

  /// Returns hardware counters of one launch of the candidate, with the L2 cold or warm (not
  /// `mixed`). Samples taken afterwards are timed under a profiler, so a runner that counts
  /// measures nothing. Errors: see `Device::count`; `unavailable` if nothing is launched.
  virtual Result<CounterSet> count(Id /*id*/, L2State /*cache*/) {
    return Error{ErrorCode::unavailable, "nothing is launched here that could be counted"};
  }

  /// The state of the environment in which samples were taken since the last audit.
  virtual Result<Audit> audit() = 0;

  /// Returns when the device had work of this runner since the last call. The result is empty if
  /// that is not known.
  virtual DeviceUse take_use() { return {}; }

  /// Keeps an idle device busy for about so long, so that its clocks stay up, and returns when that
  /// is done. Does nothing if there is no device.
  virtual void fill(double /*seconds*/) {}

  virtual void drop(Id id) = 0;

  /// A number that increases when earlier samples cannot be compared with later ones, because there
  /// is a new process.
  virtual int epoch() const { return 0; }

  /// True once the device cannot be used any more.
  virtual bool lost() const = 0;
};

}  // namespace kernwright
