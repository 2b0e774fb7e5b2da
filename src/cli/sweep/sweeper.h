#pragma once

#include <llvm/Support/CommandLine.h>
#include <optional>
#include <string>
#include <vector>

#include "service/sweep/sweep_problem.h"
#include "support/processes/subprocess.h"
#include <kernwright/problem.h>
#include <kernwright/result.h>

namespace kernwright::cli {

/// Returns the settings of a sweep with these flags.
inline SweepSettings sweep_settings(const llvm::cl::opt<double>& seconds, bool recheck) {
  SweepSettings settings{.recheck = recheck};
  if (seconds.getNumOccurrences() > 0) settings.seconds = seconds;
  return settings;
}

/// Tunes problems of a sweep on one of several GPUs, in a process of its own, `kernwright sweeper`.
/// One process could not keep several GPUs busy, because the compiler holds a lock for a part of
/// its work. The process is started again after it ended. Used by one thread at a time. Invariant:
/// there is at most one process, and none after the object is destroyed; it also ends, with its
/// worker, when the process that started it ends.
///
/// A request is a problem as text. The answer is any number of lines {"warning": TEXT} and one
/// sweep result.
class Sweeper {
 public:
  /// Starts `kernwright` with `arguments`, of which the first is the command. If that fails, the
  /// first request returns the error.
  explicit Sweeper(std::vector<std::string> arguments);

  /// Tunes one problem. If the process ends, the error of the result says how.
  SweepResult sweep(const Problem& problem);

 private:
  Result<void> start();
  Result<SweepResult> ask(const Problem& problem);

  std::vector<std::string> arguments_;
  std::optional<Subprocess> process_;
};

}  // namespace kernwright::cli
