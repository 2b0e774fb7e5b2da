#pragma once

#include <string>
#include <vector>

#include "model/result/evidence.h"
#include "service/serve/core.h"
#include <kernwright/kernel.h>
#include <kernwright/problem.h>
#include <kernwright/result.h>

namespace kernwright {

/// How the time of one launch is spent, in microseconds. The values are medians on an otherwise
/// idle stream. Buffers are zero and the L2 is warm.
struct Dispatch {
  KernelSummary kernel;
  double lookup_us = 0;   ///< get_best_kernel of a problem that was asked for before
  double packing_us = 0;  ///< checking and packing the arguments, tensor maps included
  double driver_us = 0;   ///< what a launch on a stream costs the host beyond that
  double gap_us = 0;      ///< a graph's node with an empty kernel of the same geometry
  double kernel_us = 0;   ///< what a node with this kernel takes beyond that

  /// The launch paths, with two sets of buffers in turn.
  LaunchTimes paths;

  /// Libraries and variables of profilers that were found in this process. They distort launches.
  std::vector<AuditRow> hooks;
};

/// Measures the best kernel of the problem on the service's GPU, in its primary context. Errors:
/// `unavailable` for a service without a GPU; `device`; from get_best_kernel.
Result<Dispatch> measure_dispatch(ServiceCore& core, const Problem& problem);

/// Finds the libraries and variables that put themselves between program and driver: loaded in this
/// process, or to be loaded.
std::vector<AuditRow> find_hooks();

}  // namespace kernwright
