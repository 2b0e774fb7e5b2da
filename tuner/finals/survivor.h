#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "compile/compile_request.h"
#include "model/candidate/choice.h"
#include "model/result/traits.h"
#include "tuner/runner.h"

namespace kernwright {

/// Compiled bits and the digest of the request they came from, hex.
struct CompiledCandidate {
  std::string digest;
  std::shared_ptr<const CompiledKernel> kernel;
};

/// A candidate that passed screening. Samples are corrected for the device's drift.
struct Survivor {
  std::size_t candidate = 0;
  std::size_t trial = 0;  ///< index into the search's trials
  Choice choice;
  Traits traits;
  /// Among the fastest of a template that reads ahead of its wait. Alone it gains nothing by that,
  /// but in a chain it may, so it stays in the race for its proof and its place in the record.
  bool is_for_chains = false;
  CompiledCandidate compiled;
  Runner::Id id = -1;  ///< the runner's id if it is prepared and checked; -1: not loaded
  std::vector<double> samples_us;
  double score_us = 0;  ///< their median
};

}  // namespace kernwright
