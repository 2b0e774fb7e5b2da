#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cache/records/record.h"
#include "tuner/finals/decision.h"
#include "tuner/runner.h"
#include <kernwright/result.h>

namespace kernwright {

/// A candidate that passed screening.
struct Contender {
  Runner::Id id = -1;  ///< prepared and checked
  /// The default and the incumbent reach the finals whatever they cost.
  Traits traits;
  std::vector<double> samples_us;  ///< of the screening; not empty
};

struct RaceOptions {
  std::uint64_t seed = 1;
  double seconds = 4;         ///< of everything but running alone, on `clock_seconds`
  double finals_seconds = 2;  ///< of the last rung
  int finalists = 8;
  int max_rounds = 256;  ///< of the last rung
  /// Finalists also run alone after the rounds, for up to 3 s, and longer where that leaves the
  /// verdict open (`race_alone`). Not where no power limit lowers the clock, as in simulations.
  bool alone = true;
  bool long_blocks = false;  ///< where the power limit decides; they take 12 s or more
  /// On `clock_seconds`: what would end later is not begun, which leaves trust B.
  double alone_until = std::numeric_limits<double>::infinity();
  /// The same of further short blocks, where those before left the verdict open.
  double extend_until = std::numeric_limits<double>::infinity();
  double settle_seconds = 0.3;  ///< until the device is steady after a change of load
  std::function<double()> clock_seconds;
};

/// The finals as they were sampled, and what they say.
struct RaceResult {
  struct Entry {
    std::size_t contender = 0;  ///< index into the contenders given
    /// One per round, fewer where it was clearly slower by then; after them those of blocks.
    std::vector<Sample> samples;
    CheckReport check;  ///< the finalist's proof
    bool in_blocks = false;
  };
  std::vector<Entry> finalists;  ///< in the order of the contenders; none where all failed
  FinalRounds rounds;
  Decision decision;  ///< over `finalists`
  /// Contenders that ended here, and how.
  std::vector<std::pair<std::size_t, Runner::Step>> failed;
  int raced = 0;  ///< contenders that were sampled here
  /// What the rules on disturbances and on running alone found, where they found something.
  Audit audit;
  /// Running alone, the finalists have different clocks, or none that is known. Never in bursts.
  bool power_limited = false;
};

/// Over the entries; none of them is without samples.
Decision judge(std::span<const Contender> contenders, std::span<const RaceResult::Entry> finalists,
               const FinalRounds& rounds);

/// Sample ladder and finals: rungs of a few interleaved rounds, after which the slow ones drop out;
/// then rounds of the finalists and both reference kernels, each round in a fresh random order,
/// until the verdict is settled or rounds or seconds are over. Finalists are checked in depth
/// before, and once more after; who fails makes room for the next. Rounds that something outside
/// slowed down are dropped for all. After a change of the runner's epoch a rung begins again.
/// Deterministic by seed and samples. Errors: the runner's own.
Result<RaceResult> race(Runner& runner, std::span<const Contender> contenders,
                        const RaceOptions& options);

}  // namespace kernwright
