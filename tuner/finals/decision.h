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
/// Fewer rounds than these give no interval at all.
inline constexpr int kMinRounds = 10;
/// A search that was cut off after fewer candidates has hardly looked. The cost model's first 16
/// hold one within 1.1 % of the best on 14 of 18 spaces recorded on an H200; its first alone is up
/// to 72 % slower than the best there.
inline constexpr int kFewestLooks = 16;

/// `samples[i]` and `leader[i]` were taken in the same round; both have the same, non-zero length.
/// The interval is that of order statistics, widened where successive differences resemble each
/// other; of fewer than `kMinRounds` rounds it is the whole range.
Slowdown paired_slowdown(std::span<const double> samples, std::span<const double> leader);

/// What a tie is broken by, in this order; none of it depends on timing.
struct Traits {
  std::string id;
  bool is_incumbent = false;
  bool is_default = false;
  bool deterministic = true;
  std::int64_t workspace_bytes = 0;
  bool warned = false;  ///< the compiler warned of something that costs speed
  int registers = 0;
  std::int64_t smem_bytes = 0;  ///< static and dynamic
};

/// One candidate of the finals.
struct Finalist {
  Traits traits;
  /// One per round, and those of blocks. Who was clearly slower after some rounds has only those.
  std::vector<double> samples_us;
  bool in_blocks = false;  ///< the last `FinalRounds::block_rounds` come from blocks
};

/// Where a finalist stands against the fastest one, its `slowdown` included.
struct Standing {
  enum class Place { leader, tied, open, slower };
  Place place = Place::leader;
  Slowdown slowdown;
  /// Its samples fall into two groups more than 3 % apart; it is judged by the slower one.
  bool bimodal = false;
  /// So much slower that further rounds of it teach nothing.
  bool out = false;

  /// Not told apart from the fastest.
  bool equal() const { return place != Place::slower; }
};

/// What the samples of the finals say.
struct Decision {
  Verdict verdict = Verdict::unresolved;
  std::size_t winner = 0;
  std::size_t leader = 0;  ///< the fastest; not the winner where a tie or the incumbent decides
  std::vector<Standing> standings;
  /// Further rounds would not change the verdict.
  bool settled = false;
  /// More than a quarter of the rounds do not count: nothing new may win.
  bool disturbed = false;
};

/// Judges finals, whose rounds all finalists that are still in share. The leader has the smallest
/// median of log times relative to the round. Another one is slower where the interval of its
/// paired differences from the leader lies above 0 and the estimate reaches `kDelta`; tied where
/// the interval ends below `kEquivalence`; else open. The incumbent is slower only where its
/// interval lies above `kEquivalence` and above its own width. All others slower: `win`. Nobody
/// open: `tie`. Else `unresolved`, and the open ones belong to the tie.
///
/// Of a tie wins the incumbent, then the default, then by `Traits`; but nobody new wins whose
/// estimate is beyond `kEquivalence`, nor one that is not clearly faster than a default that is
/// slower itself. So a winner that is neither incumbent nor default is faster than the default
/// beyond doubt. Those that have blocks are judged by these among themselves, with intervals of
/// signed ranks, and a tie of blocks falls first to whom the rounds did not find slower.
/// `finalists` is not empty, and each has a sample in a round that counts.
Decision decide(std::span<const Finalist> finalists, const FinalRounds& rounds);

/// The same from a record alone: winner first, then the runners-up. Of a search that has hardly
/// looked it is `unresolved`: how its few candidates compare says nothing of the others.
Decision decide(const TuningRecord& record);

/// Whether so many candidates that ended, of all there are, say little of the space: fewer than
/// `kFewestLooks`, and not all.
bool hardly_looked(int ended, int candidates);
/// Whether the search of a measured record was cut off by its seconds or its trials that early.
bool hardly_looked(const TuningRecord& record);

}  // namespace kernwright
