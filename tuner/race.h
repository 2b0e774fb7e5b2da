#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tuner/runner.h"
#include <kernwright/result.h>

namespace kernwright {

/// A candidate that passed screening.
struct Contender {
  Runner::Id id = -1;  ///< prepared and checked
  std::string name;
  std::vector<Sample> samples;  ///< of the screening
  bool keep = false;  ///< the default and the incumbent reach the finals whatever they cost
};

struct RaceOptions {
  std::uint64_t seed = 1;
  double seconds = 2;    ///< of the finals together, on `clock_seconds`
  int max_rounds = 256;  ///< of the last rung
  /// Blocks of one finalist after another decide where the power limit does; they take 8 to 20 s.
  bool power_blocks = false;
  std::function<double()> clock_seconds;
};

/// The finals as they were sampled. Invariant: every finalist has one sample per round.
struct RaceResult {
  struct FinalistSamples {
    std::size_t contender = 0;    ///< index into the contenders given
    std::vector<Sample> samples;  ///< one per round
  };
  std::vector<FinalistSamples> finalists;
  std::vector<Sample> sm_reference;    ///< one per round
  std::vector<Sample> dram_reference;  ///< one per round
  std::vector<int> dropped;            ///< rounds that an outside disturbance hit
  std::vector<std::pair<std::size_t, Runner::Step>>
      failed;              ///< contenders that ended here, and how
  int raced = 0;           ///< contenders that were sampled beyond screening
  bool disturbed = false;  ///< too many rounds were dropped, twice
  bool power_limited = false;
};

/// Sample ladder and finals: rungs of a few samples each in random order, from which the slow ones
/// drop out, then interleaved rounds of the finalists and both reference kernels, each round in a
/// fresh random order, until the verdict is clear or rounds or seconds are over. Deterministic by
/// seed. Errors: the runner's own.
Result<RaceResult> race(Runner& runner, std::span<const Contender> contenders,
                        const RaceOptions& options);

}  // namespace kernwright
