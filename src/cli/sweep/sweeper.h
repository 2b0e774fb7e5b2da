#pragma once

#include <optional>
#include <string>
#include <vector>

#include "service/sweep/sweep_problem.h"
#include "support/processes/subprocess.h"
#include <kernwright/problem.h>
#include <kernwright/result.h>

namespace kernwright::cli {

/// What tunes a sweep's problems on one of several GPUs, in a process of its own, `kernwright
/// sweeper`: the compiler holds a lock within a process for a part of its work, so that one process
/// cannot keep several GPUs busy. Started again after it ended. Used by one thread at a time.
/// Invariant: at most one process, which is gone when this is; it also ends, with its worker, when
/// the process that started it does.
///
/// Requests are problems in text form; each is answered by any number of lines {"warning": TEXT}
/// and one sweep result.
class Sweeper {
 public:
  /// Starts `kernwright` with `arguments`, the first of which is the command. Where that fails, the
  /// first request says why.
  explicit Sweeper(std::vector<std::string> arguments);

  /// The error of the result also says how the process ended, where it did.
  SweepResult sweep(const Problem& problem);

 private:
  Result<void> start();
  Result<SweepResult> ask(const Problem& problem);

  std::vector<std::string> arguments_;
  std::optional<Subprocess> process_;
};

}  // namespace kernwright::cli
