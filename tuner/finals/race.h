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
#include "tuner/finals/survivor.h"
#include "tuner/runner.h"
#include <kernwright/result.h>

namespace kernwright {

struct RaceOptions {
  std::uint64_t random_seed = 1;
  double seconds = 4;         ///< for everything but running alone, on `clock_seconds`
  double finals_seconds = 2;  ///< for the last rung
  int finalists = 8;
  int max_rounds = 256;  ///< of the last rung
  /// The finalists also run alone after the rounds (`race_alone`). That takes up to 3 s, and longer
  /// if it leaves the verdict open. It is off if no power limit lowers the clock, as in
  /// simulations.
  bool alone = true;
  bool long_blocks = false;  ///< there is time for blocks of a second and more, 12 s in all
  /// A time on `clock_seconds`. Running alone is not begun if it would end later. That leaves trust
  /// B.
  double alone_until = std::numeric_limits<double>::infinity();
  /// The same for further short blocks, which follow if the blocks before left the verdict open.
  double extend_until = std::numeric_limits<double>::infinity();
  double settle_seconds = 0.3;  ///< until the device is steady after a change of load
  std::function<double()> clock_seconds;
};

/// The finals as they were sampled, and what they say.
struct RaceResult {
  struct Finalist {
    std::size_t survivor = 0;  ///< index into the survivors given
    /// One sample per round, and then the samples of blocks. A finalist that was clearly slower
    /// after some rounds has only the samples of these.
    std::vector<Sample> samples;
    CheckReport check;  ///< the finalist's proof
    bool in_blocks = false;
  };
  std::vector<Finalist> finalists;  ///< in the order of the survivors; empty if all failed
  FinalRounds rounds;
  Decision decision;  ///< over `finalists`
  /// Survivors that ended here, and how.
  std::vector<std::pair<std::size_t, Runner::Step>> failed;
  int raced = 0;  ///< survivors that were sampled here
  /// Findings of the rules on disturbances and on running alone, if there are any.
  Audit audit;
  /// Running alone, the finalists have different clocks, or none that is known. Never in bursts.
  bool power_limited = false;
};

/// Judges the finalists by their samples; none of them is without.
Decision decide(std::span<const Survivor> survivors,
                std::span<const RaceResult::Finalist> finalists, const FinalRounds& rounds);

/// Races the survivors, all of them loaded: first rungs of a few interleaved rounds, after each of
/// which the slow ones drop out, then the finals.
///
/// A round samples the SM probe, every survivor once in a fresh random order, and the DRAM
/// probe. The finals go on until the verdict is settled, or until rounds or seconds are over.
/// Finalists are checked in depth before the finals, and once more after them. A finalist that
/// fails makes room for the next survivor. Rounds that something outside slowed down are dropped
/// for everybody. After a change of the runner's epoch a rung begins again.
///
/// The default and the incumbent reach the finals whatever they cost.
///
/// The result follows from the random seed and the samples alone. Errors: the runner's own.
Result<RaceResult> race(Runner& runner, std::span<const Survivor> survivors,
                        const RaceOptions& options);

}  // namespace kernwright
