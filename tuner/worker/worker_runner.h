#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "model/catalog/catalog.h"
#include "model/operation/bound_problem.h"
#include "tuner/measure/device_runner.h"
#include "tuner/runner.h"
#include "tuner/worker/worker.h"
#include <kernwright/result.h>

namespace kernwright {

/// The problem to measure, with what both processes need to know of it.
struct WorkerProblem {
  const Catalog& catalog;
  std::vector<std::filesystem::path>
      template_dirs;  ///< the folders from which `catalog` was loaded
  const BoundProblem& problem;
  const DeviceProfile& profile;
};

/// Makes a `Runner` whose candidates run in `worker`'s process. Each request has a deadline, which
/// follows from the candidate's predicted or known time.
///
/// A candidate that hangs, ends the process or poisons its context costs itself. Its outcome says
/// how: `timed_out`, `worker_died`, `illegal_address` and so on. The process is replaced, the
/// problem is opened again there, and `epoch()` counts up. The ids of other candidates stay valid.
/// A candidate whose process died gets a second chance, alone in a fresh process.
///
/// After each replacement a canary, the SM probe kernel, decides whether the device is at fault. If
/// it fails, or is slower by more than `kCanarySlack` than when the problem was first opened, the
/// runner is lost and the candidate's outcome is `device_lost`.
///
/// All samples that one call of `sample` returns are of one epoch. `worker` and the objects that
/// `problem` refers to outlive the runner. Other problems may be opened on the worker in between.
/// Errors: the process cannot open the problem.
Result<std::unique_ptr<Runner>> open_worker_runner(Worker& worker, const WorkerProblem& problem,
                                                   const DeviceRunnerOptions& options);

}  // namespace kernwright
