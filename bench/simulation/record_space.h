#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "bench/simulation/landscape_file.h"
#include "tuner/runner.h"
#include "tuner/search/compile_queue.h"
#include <kernwright/result.h>

namespace kernwright {

struct RecordingOptions {
  int samples = 32;  ///< of each candidate
  double seconds = std::numeric_limits<double>::infinity();
  std::size_t limit = std::numeric_limits<std::size_t>::max();  ///< of candidates in the file
  std::function<double()> clock_seconds;
  /// Told after every candidate.
  std::function<void(std::size_t candidate, const LandscapeEntry& entry)> progress;
};

/// Measures every candidate that the file does not have yet, in an order that has nothing to do
/// with its parameters: compiled ahead, checked, then sampled between probe kernels. The device is
/// kept busy by the probes while no compile is ready. Returns how many are left when the time is
/// over. Errors: the runner's or the file's own; `device` if a candidate took the device along (it
/// is in the file; start again).
Result<std::size_t> record_space(std::span<const Candidate> candidates,
                                 std::span<const double> predicted_us, std::size_t default_index,
                                 const DeviceProfile& profile, CompileQueue& queue, Runner& runner,
                                 LandscapeFile& file, const RecordingOptions& options);

}  // namespace kernwright
