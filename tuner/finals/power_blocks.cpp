#include "tuner/finals/power_blocks.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "support/statistics.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

/// Clocks that differ by less than this share are equal. The first is for one look at each
/// finalist, the second for their ratios within a pass of blocks: a device whose clock follows
/// slowly shows only a small part of the difference that there would be in the long run.
constexpr double kClockSpread = 0.01;
constexpr double kPairedClockSpread = 0.002;
/// A finalist that is slower than this at a shared clock is slower at its own clock too: power
/// limits cost up to 17 %.
constexpr double kReach = 0.2;
constexpr std::size_t kBlockFinalists = 3;

/// How blocks of one finalist are sampled. Passes go A B C, then C B A, and so on, with a block of
/// each finalist.
struct BlockPlan {
  double seconds = 0;         ///< of one block
  double settling_share = 0;  ///< of the block, at its begin: left out, since the clock still moves
  int passes = 0;
  std::size_t values = 0;  ///< values per block, each the mean of one part of it
};
/// One block of each finalist, which shows whether their clocks differ at all.
constexpr BlockPlan kClockLook{0.1, 0.5, 1, 8};
/// An H200 sets its clock anew every 16 ms or so, by up to some percent, and reaches the clock of a
/// new kernel after 4 to 32 ms. So a short block is one value, and there are many of them. The
/// number of passes is even, so that drift hits all finalists alike.
constexpr BlockPlan kShortBlocks{0.056, 0.5, 12, 1};
/// If the short blocks leave the verdict open and there is time, as many follow again, up to this
/// number of passes.
constexpr int kMostShortPasses = 48;
/// A long block lasts `kSettlings` times the device's settling time, but at least a second.
constexpr BlockPlan kLongBlocks{1, 0.5, 4, 8};
constexpr double kSettlings = 3;
constexpr std::size_t kSamplesPerCall = 4;
constexpr std::size_t kMostInBlock = 20'000;  ///< samples, if the clock does not advance

enum class BlockEnd { complete, failed, not_comparable, no_time };
/// The values of blocks, by index into the race's finalists. Value i of all of them is of the same
/// pass.
using BlockValues = std::map<std::size_t, std::vector<Sample>>;

class PowerBlocks {
 public:
  PowerBlocks(Runner& runner, std::span<const Survivor> survivors, const RaceOptions& options,
              RaceResult& result)
      : runner_(runner), survivors_(survivors), options_(options), result_(result) {}

  Result<void> run();

 private:
  std::vector<std::size_t> within_reach() const;
  std::vector<std::size_t> best_alone(const BlockValues& alone) const;
  /// Returns whether so many blocks end by `until`, a time on the race's clock.
  bool end_by(double until, std::size_t blocks, double seconds) const {
    return options_.clock_seconds() + static_cast<double>(blocks) * seconds <= until;
  }
  BlockPlan plan() const;
  Result<BlockEnd> sample_block(std::size_t finalist, const BlockPlan& plan,
                                std::vector<Sample>& values);
  Result<BlockEnd> look_at_clocks(BlockValues& alone);
  Result<BlockEnd> sample_passes(std::vector<std::size_t> order, double until, BlockValues& values);
  bool undecided() const {
    return !options_.long_blocks && result_.decision.verdict == Verdict::unresolved &&
           result_.rounds.block_rounds < kMostShortPasses;
  }
  void leave_to_rounds(BlockEnd why);
  void lower_trust(std::string detail) {
    result_.audit.merge({{{"power_blocks", Trust::b, std::move(detail)}}});
  }

  Runner& runner_;
  std::span<const Survivor> survivors_;
  const RaceOptions& options_;
  RaceResult& result_;
};

double median_of(const std::vector<Sample>& samples, double Sample::* member) {
  std::vector<double> values;
  for (const Sample& sample : samples) values.push_back(sample.*member);
  return median(std::move(values));
}

/// Returns the mean of the middle half. If the clock alternates between two values, a median would
/// be one of them.
double midmean(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto cut = static_cast<std::ptrdiff_t>(values.size() / 4);
  return std::accumulate(values.begin() + cut, values.end() - cut, 0.0) /
         static_cast<double>(static_cast<std::ptrdiff_t>(values.size()) - 2 * cut);
}

/// Compares each clock by its ratio to the first finalist's in the same round, since all clocks
/// drift.
bool clocks_differ(const BlockValues& values, double spread) {
  const std::vector<Sample>& first = values.begin()->second;
  std::vector<double> clocks;
  for (const auto& [finalist, samples] : values) {
    std::vector<double> ratios;
    for (std::size_t round = 0; round < samples.size(); ++round) {
      if (first[round].sm_mhz <= 0 || samples[round].sm_mhz <= 0) return true;
      ratios.push_back(samples[round].sm_mhz / first[round].sm_mhz);
    }
    clocks.push_back(median(std::move(ratios)));
  }
  const auto [low, high] = std::minmax_element(clocks.begin(), clocks.end());
  return *high > (1 + spread) * *low;
}

/// The finalists that may turn out the best when they run alone. The default and the incumbent are
/// treated like any other.
std::vector<std::size_t> PowerBlocks::within_reach() const {
  std::vector<std::size_t> finalists;
  for (std::size_t i = 0; i < result_.finalists.size(); ++i) {
    if (result_.decision.standings[i].slowdown.estimate <= kReach) finalists.push_back(i);
  }
  return finalists;
}

/// The winner of the rounds and the best of the others. The winner takes part so that a tie can
/// favour it.
std::vector<std::size_t> PowerBlocks::best_alone(const BlockValues& alone) const {
  std::vector<std::pair<std::pair<bool, double>, std::size_t>> ranks;
  for (const auto& [finalist, samples] : alone) {
    ranks.push_back(
        {{finalist != result_.decision.winner, median_of(samples, &Sample::us)}, finalist});
  }
  std::sort(ranks.begin(), ranks.end());
  std::vector<std::size_t> best;
  for (std::size_t i = 0; i < std::min(ranks.size(), kBlockFinalists); ++i) {
    best.push_back(ranks[i].second);
  }
  return best;
}

BlockPlan PowerBlocks::plan() const {
  if (!options_.long_blocks) return kShortBlocks;
  BlockPlan plan = kLongBlocks;
  plan.seconds = std::max(plan.seconds, kSettlings * options_.settle_seconds);
  return plan;
}

/// One finalist alone, long enough for the clock to settle.
Result<BlockEnd> PowerBlocks::sample_block(std::size_t finalist, const BlockPlan& plan,
                                           std::vector<Sample>& values) {
  const std::size_t survivor = result_.finalists[finalist].survivor;
  const std::vector<Runner::Id> order(kSamplesPerCall, survivors_[survivor].id);
  const int epoch = runner_.epoch();
  const double start = options_.clock_seconds();
  std::vector<Sample> settled;
  for (std::size_t taken = 0;
       options_.clock_seconds() - start < plan.seconds && taken < kMostInBlock;
       taken += order.size()) {
    KW_ASSIGN(auto sampled, runner_.sample(order));
    for (const Runner::Sampled& one : sampled) {
      if (one.step.outcome == Outcome::ok) continue;
      result_.failed.emplace_back(survivor, one.step);
      return BlockEnd::failed;
    }
    if (runner_.epoch() != epoch) return BlockEnd::not_comparable;
    if (options_.clock_seconds() - start <= plan.settling_share * plan.seconds) continue;
    for (const Runner::Sampled& one : sampled) settled.push_back(one.sample);
  }
  if (settled.size() < plan.values) return BlockEnd::not_comparable;
  for (std::size_t part = 0; part < plan.values; ++part) {
    std::vector<double> us;
    std::vector<double> mhz;
    const std::size_t end = (part + 1) * settled.size() / plan.values;
    for (std::size_t i = part * settled.size() / plan.values; i < end; ++i) {
      us.push_back(settled[i].us);
      mhz.push_back(settled[i].sm_mhz);
    }
    values.push_back(
        {midmean(std::move(us)), midmean(std::move(mhz)), settled[end - 1].at_seconds});
  }
  return BlockEnd::complete;
}

/// `alone` stays empty unless two finalists are within reach.
Result<BlockEnd> PowerBlocks::look_at_clocks(BlockValues& alone) {
  const std::vector<std::size_t> finalists = within_reach();
  if (finalists.size() < 2) return BlockEnd::complete;
  if (!end_by(options_.alone_until, finalists.size(), kClockLook.seconds)) {
    return BlockEnd::no_time;
  }
  for (const std::size_t finalist : finalists) {
    KW_ASSIGN(const BlockEnd end, sample_block(finalist, kClockLook, alone[finalist]));
    if (end != BlockEnd::complete) return end;
  }
  return BlockEnd::complete;
}

/// All passes of the plan, from the finalists in `order` on.
Result<BlockEnd> PowerBlocks::sample_passes(std::vector<std::size_t> order, double until,
                                            BlockValues& values) {
  const BlockPlan passes = plan();
  const std::size_t blocks = static_cast<std::size_t>(passes.passes) * order.size();
  if (!end_by(until, blocks, passes.seconds)) return BlockEnd::no_time;
  for (int pass = 0; pass < passes.passes; ++pass) {
    for (const std::size_t finalist : order) {
      KW_ASSIGN(const BlockEnd end, sample_block(finalist, passes, values[finalist]));
      if (end != BlockEnd::complete) return end;
    }
    std::reverse(order.begin(), order.end());
  }
  return BlockEnd::complete;
}

/// The verdict without these blocks, by what was sampled before them.
void PowerBlocks::leave_to_rounds(BlockEnd why) {
  if (why == BlockEnd::failed) {
    std::erase_if(result_.finalists, [this](const RaceResult::Finalist& finalist) {
      return finalist.survivor == result_.failed.back().first;
    });
  }
  lower_trust(why == BlockEnd::no_time ? "there was no time for finalists to run alone"
                                       : "a finalist's own clock is not known");
  if (!result_.finalists.empty()) {
    result_.decision = decide(survivors_, result_.finalists, result_.rounds);
  }
}

Result<void> PowerBlocks::run() {
  BlockValues alone;
  KW_ASSIGN(const BlockEnd looked, look_at_clocks(alone));
  if (looked != BlockEnd::complete) {
    leave_to_rounds(looked);
    return {};
  }
  if (alone.empty()) return {};
  result_.power_limited = clocks_differ(alone, kClockSpread);
  if (!result_.power_limited) return {};

  const std::vector<std::size_t> order = best_alone(alone);
  do {
    const bool first = result_.rounds.block_rounds == 0;
    BlockValues values;
    KW_ASSIGN(const BlockEnd end,
              sample_passes(order, first ? options_.alone_until : options_.extend_until, values));
    if (end == BlockEnd::failed || (first && end != BlockEnd::complete)) {
      leave_to_rounds(end);
      return {};
    }
    if (end != BlockEnd::complete) break;
    if (first) {
      result_.power_limited = clocks_differ(values, kPairedClockSpread);
      if (!result_.power_limited) return {};
      if (!options_.long_blocks) {
        lower_trust("the finalists' clocks differ; short blocks decided");
      }
    }
    for (const auto& [at, more] : values) {
      RaceResult::Finalist& finalist = result_.finalists[at];
      finalist.samples.insert(finalist.samples.end(), more.begin(), more.end());
      finalist.in_blocks = true;
    }
    result_.rounds.block_rounds += static_cast<int>(values.begin()->second.size());
    result_.decision = decide(survivors_, result_.finalists, result_.rounds);
  } while (undecided());
  return {};
}

}  // namespace

Result<void> race_alone(Runner& runner, std::span<const Survivor> survivors,
                        const RaceOptions& options, RaceResult& result) {
  return PowerBlocks(runner, survivors, options, result).run();
}

}  // namespace kernwright
