#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compile/compile_request.h"
#include "model/candidate.h"
#include "model/measurement.h"
#include <kernwright/result.h>

namespace kernwright {

/// Measures the candidates of one problem, one after another. Implementations: on a device in this
/// process (`DeviceRunner`); others live in a worker process, replay a recording or are synthetic.
/// Used by one thread. A candidate's failure is an `Outcome`; an `Error` means that the runner
/// itself cannot go on.
class Runner {
 public:
  using Id = int;

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

  /// Runs the candidate once on poisoned outputs and compares every output with the reference.
  struct Checked {
    Step step;
    CheckReport report;
  };
  virtual Result<Checked> check(Id id) = 0;

  /// `rounds` samples of each id in microseconds per launch of the whole plan, taken in interleaved
  /// order: one sample of each id in the order given, then the next round. A candidate that fails
  /// gets its step and no further samples.
  struct Sampled {
    Step step;
    std::vector<double> samples_us;
  };
  virtual Result<std::vector<Sampled>> sample(std::span<const Id> ids, int rounds) = 0;

  virtual void drop(Id id) = 0;

  /// True once the device cannot be used any more.
  virtual bool lost() const = 0;
};

}  // namespace kernwright
