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
  Runner::Id id = -1;  ///< of the runner, where it is prepared and checked
  /// Among them whether it is the default or the incumbent: these two reach the finals whatever
  /// they cost.
  Traits traits;
  std::vector<double> samples_us;  ///< of the screening; not empty
};

struct RaceOptions {
  std::uint64_t seed = 1;
  double seconds = 4;         ///< for everything but running alone, on `clock_seconds`
  double finals_seconds = 2;  ///< for the last rung
  int finalists = 8;
  int max_rounds = 256;  ///< of the last rung
  /// The finalists also run alone after the rounds (`race_alone`). That takes up to 3 s, and longer
  /// where it leaves the verdict open. Not where no power limit lowers the clock, as in
  /// simulations.
  bool alone = true;
  bool long_blocks = false;  ///< there is time for blocks of a second and more, 12 s in all
  /// A time on `clock_seconds`. Running alone is not begun where it would end later. That leaves
  /// trust B.
  double alone_until = std::numeric_limits<double>::infinity();
  /// The same for further short blocks, where those before left the verdict open.
  double extend_until = std::numeric_limits<double>::infinity();
  double settle_seconds = 0.3;  ///< until the device is steady after a change of load
  std::function<double()> clock_seconds;
};

/// The finals as they were sampled, and what they say.
struct RaceResult {
  struct Entry {
    std::size_t contender = 0;  ///< index into the contenders given
    /// One sample per round, and then those of blocks. A finalist that was clearly slower after
    /// some rounds has only the samples of these.
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

/// Races the contenders: first rungs of a few interleaved rounds, after each of which the slow ones
/// drop out, then the finals.
///
/// A round samples the SM reference, every contender once in a fresh random order, and the DRAM
/// reference. The finals go on until the verdict is settled, or until rounds or seconds are over.
/// Finalists are checked in depth before the finals, and once more after them. A finalist that
/// fails makes room for the next contender. Rounds that something outside slowed down are dropped
/// for everybody. After a change of the runner's epoch a rung begins again.
///
/// The result follows from seed and samples alone. Errors: the runner's own.
Result<RaceResult> race(Runner& runner, std::span<const Contender> contenders,
                        const RaceOptions& options);

}  // namespace kernwright
