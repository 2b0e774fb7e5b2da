#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cache/records/record.h"
#include "model/result/evidence.h"
#include "model/result/trial.h"

namespace kernwright {

/// The smallest difference worth a claim.
inline constexpr double kDelta = 0.005;
/// Closer than this is equal for every purpose.
inline constexpr double kEquivalence = 0.01;
/// Fewer rounds than this yield no interval at all.
inline constexpr int kMinRounds = 10;
/// The place of a finalist relative to the fastest one.
struct Standing {
  enum class Place { leader, tied, open, slower };
  Place place = Place::leader;
  Slowdown slowdown;
  /// Its samples fall into two groups more than `kModeGap` apart. It is judged by the slower group.
  bool bimodal = false;
  /// It is so much slower that further rounds of it teach nothing.
  bool out = false;

  /// Not told apart from the fastest.
  bool equal() const { return place != Place::slower; }
};

/// The outcome of the finals' samples.
struct Decision {
  Verdict verdict = Verdict::unresolved;
  std::size_t winner = 0;
  std::size_t leader = 0;  ///< the fastest; not the winner if a tie or the incumbent decides
  std::vector<Standing> standings;
  /// Further rounds would not change the verdict.
  bool settled = false;
  /// More than a quarter of the rounds were disturbed. Then all of them count after all.
  bool disturbed = false;
};

/// Judges the finals by the samples of the finalists: one per round, then those from blocks. All
/// finalists that are still in share each round; one that was clearly slower after some rounds has
/// only the samples of these. `finalists` is not empty, and each has a sample in a round that
/// counts.
///
/// The leader has the smallest median of log times relative to the round. Another finalist is
/// slower if the interval of its paired differences from the leader is above 0 and the estimate
/// reaches `kDelta`. It is tied if the interval ends below `kEquivalence`, or is above 0 with a
/// smaller estimate. It is open otherwise. The incumbent is slower only if its interval is above
/// `kEquivalence` and above its own width.
///
/// The verdict is `win` if all others are slower, `tie` if nobody is open, and `unresolved`
/// otherwise; open finalists belong to the tie then.
///
/// A tie goes to the incumbent, then to the default, then to the predicted choice, then by
/// `Traits`. But if the default is open and the predicted choice was measured faster by
/// `kEquivalence`, the tie goes to the predicted choice, and the other way round. Neither gets it
/// if the leader was faster in nine of ten rounds, and by 3 % at the median. A newcomer does not
/// win if its estimate is beyond `kEquivalence`, or if it is not clearly faster than a default that
/// is itself slower than the leader. So a winner that is neither incumbent, default nor predicted
/// is faster than the default beyond doubt, or was so in nine of ten rounds.
///
/// If the clock falls again and again, as at a power limit, more than a quarter of the rounds may
/// be disturbed. The disturbance affects everybody in a round, so paired differences still tell who
/// is faster. All rounds count then, and the verdict is `unresolved`.
///
/// Finalists that have blocks are judged among themselves by these, with intervals of signed ranks.
/// A tie of blocks goes first to a finalist that the rounds did not find slower.
Decision decide(std::span<const RankedConfiguration> finalists, const FinalRounds& rounds);

/// The same from a record alone: the winner is the first finalist, then the runners-up follow. The
/// verdict of a search that has hardly looked is `unresolved`: how its few candidates compare says
/// nothing about the others.
Decision decide(const TuningRecord& record);

}  // namespace kernwright
