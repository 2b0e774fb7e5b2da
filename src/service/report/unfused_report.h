#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cache/records/record.h"
#include "service/serve/core.h"
#include <kernwright/problem.h>
#include <kernwright/result.h>

namespace kernwright {

/// A fused kernel beside its problem's unfused form.
struct UnfusedReport {
  struct Kernel {
    std::string problem;          ///< canonical text
    std::string kernel_template;  ///< the winner's
    std::string configuration;
    std::int64_t bytes = 0;  ///< the fewest that device memory must move, by its operation
    int launches = 0;
    double us = 0;               ///< by itself, as its record says
    bool hardly_looked = false;  ///< its search was cut off that early, see `hardly_looked`
  };
  /// All kernels of one side together.
  struct Side {
    std::int64_t bytes = 0;
    int launches = 0;
    double us = 0;
    double max_error = 0;  ///< in units of the side's bound; 0 if predicted
  };

  bool measured = false;  ///< in turn in this process; else times are sums of predictions
  Kernel fused_kernel;
  std::vector<Kernel> kernels;
  Side fused;
  Side unfused;

  /// How many times as long as the fused kernel the separate kernels take.
  double ratio() const { return unfused.us / fused.us; }
};

/// Returns the record of a problem, which is tuned for about so many seconds or predicted.
using RecordOf = std::function<Result<TuningRecord>(const Problem& problem, double seconds)>;

/// Compares the best kernel of the problem with the best kernels of its unfused form, on the GPU,
/// or by predictions if the service has none.
///
/// `record_of` is asked once for each different problem, the fused one first. The fused one gets
/// half of the `seconds`, and if there are few, the first `kFusedSeconds`. The others share what
/// its search left. Errors: `not_found` if there is no unfused form; from `record_of`; `internal`
/// if a result is wrong; `device`.
Result<UnfusedReport> report_unfused(ServiceCore& core, const Problem& problem,
                                     const RecordOf& record_of, double seconds, std::uint64_t seed);

}  // namespace kernwright
