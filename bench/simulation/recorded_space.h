#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "model/candidate/parameter_space.h"
#include "model/result/measurement.h"
#include "tuner/strategies/search_strategy.h"
#include <kernwright/result.h>

namespace kernwright {

/// One configuration of a recorded space, with its measurements.
struct RecordedConfiguration {
  int kernel_template = 0;  ///< into `RecordedSpace::templates`
  /// Its template's parameters alone. A value that is not an integer is its place in the header's
  /// list.
  Configuration configuration;
  Outcome outcome = Outcome::ok;
  std::vector<double> samples_us;  ///< in the order taken; not empty if the outcome is ok
  std::vector<double> sm_mhz;      ///< one per sample, or empty if not recorded
  double compile_seconds = 0;
  double predicted_us = 0;  ///< by the cost model; 0: not recorded
  /// Its time for the simulation: the median of the steady half, which is the second half of its
  /// samples; for a trial log the median of all samples. It is 0 if the outcome is not ok.
  double truth_us = 0;
  double final_us = 0;  ///< from a trial log: the time in the finals; 0 if it did not reach them
  int registers = 0;
  int spill_bytes = 0;
  std::int64_t smem_bytes = 0;
};

/// An exhaustive sweep of one kernel, or of several templates, for one problem on one device.
/// At least one configuration is ok, no two are equal.
struct RecordedSpace {
  std::string name;
  std::string device;
  std::string kernel;
  std::string problem;                 ///< as recorded: a problem's text, or its sizes
  std::string policy;                  ///< empty if not recorded
  std::vector<std::string> templates;  ///< at least one; the kernel's name if there is just one
  std::vector<RecordedConfiguration> configurations;
  /// The recorded default; the first configuration if none was recorded.
  std::size_t default_index = 0;

  /// The fastest true time.
  double best_us() const;
};

/// Reads a landscape or a trial log, plain or compressed with gzip (whatever its name says).
/// Errors: `io`, `not_found`, or `corrupt` naming file, line and defect.
Result<RecordedSpace> read_recorded_space(const std::filesystem::path& path);

/// Reads every *.jsonl and *.jsonl.gz of a folder, by name, or every session of one file of trial
/// logs. Errors: a file's own; `not_found` if there is none.
Result<std::vector<RecordedSpace>> read_recorded_spaces(const std::filesystem::path& folder);

/// Returns a strategy's view of a recorded space, which must outlive it.
SearchSpace make_search_space(const RecordedSpace& recorded);

}  // namespace kernwright
