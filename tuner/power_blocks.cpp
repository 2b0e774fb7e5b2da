#include "tuner/power_blocks.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "tuner/rounds.h"

namespace kernwright {
namespace {

constexpr double kClockSpread = 0.01;
/// Who is that much slower at a shared clock is so at its own.
constexpr double kBlockMargin = 0.1;
constexpr std::size_t kBlockFinalists = 3;
constexpr int kBlockPasses = 4;  ///< A B C, C B A and once more
/// A block lasts so many times the device's settling time, and a second at least; the second half
/// counts as so many rounds, each the median of its part.
constexpr double kSettlings = 3;
constexpr double kMinBlockSeconds = 1;
constexpr std::size_t kRoundsPerBlock = 8;
constexpr std::size_t kBlockOrder = 8;        ///< samples per call within a block
constexpr std::size_t kMostInBlock = 20'000;  ///< where the clock stands still
class Blocks {
 public:
  Blocks(Runner& runner, std::span<const Contender> contenders, const RaceOptions& options,
         RaceResult& result)
      : runner_(runner), contenders_(contenders), options_(options), result_(result) {}

  Result<void> run();

 private:
  /// How a block ended.
  enum class End { settled, failed, not_comparable };

  std::vector<std::size_t> order() const;
  Result<End> sample_block(std::size_t entry, std::vector<Sample>& rounds);
  Result<End> sample_all(std::map<std::size_t, std::vector<Sample>>& taken);

  Runner& runner_;
  std::span<const Contender> contenders_;
  const RaceOptions& options_;
  RaceResult& result_;
};

/// Entries of the result: the winner, the leader and the next best.
std::vector<std::size_t> Blocks::order() const {
  const Decision& decision = result_.decision;
  std::vector<std::size_t> order(result_.finalists.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto rank = [&](std::size_t at) {
    return std::pair(at != decision.winner && at != decision.leader,
                     decision.standings[at].slowdown.estimate);
  };
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return rank(a) < rank(b); });
  order.resize(std::min(order.size(), kBlockFinalists));
  std::erase_if(order, [&](std::size_t at) {
    return decision.standings[at].slowdown.estimate > kBlockMargin;
  });
  return order;
}

/// One finalist alone, long enough for the clock to settle.
Result<Blocks::End> Blocks::sample_block(std::size_t entry, std::vector<Sample>& rounds) {
  const std::size_t contender = result_.finalists[entry].contender;
  const std::vector<Runner::Id> order(kBlockOrder, contenders_[contender].id);
  const double seconds = std::max(kMinBlockSeconds, kSettlings * options_.settle_seconds);
  const int epoch = runner_.epoch();
  const double start = options_.clock_seconds();
  std::vector<Sample> settled;
  for (std::size_t taken = 0; options_.clock_seconds() - start < seconds && taken < kMostInBlock;
       taken += order.size()) {
    auto sampled = runner_.sample(order);
    if (!sampled) return sampled.error();
    for (const Runner::Sampled& one : sampled.value()) {
      if (one.step.outcome == Outcome::ok) continue;
      result_.failed.emplace_back(contender, one.step);
      return End::failed;
    }
    if (runner_.epoch() != epoch) return End::not_comparable;
    if (options_.clock_seconds() - start <= seconds / 2) continue;
    for (const Runner::Sampled& one : sampled.value()) settled.push_back(one.sample);
  }
  if (settled.size() < kRoundsPerBlock) return End::not_comparable;
  for (std::size_t part = 0; part < kRoundsPerBlock; ++part) {
    std::vector<double> us;
    std::vector<double> mhz;
    const std::size_t end = (part + 1) * settled.size() / kRoundsPerBlock;
    for (std::size_t i = part * settled.size() / kRoundsPerBlock; i < end; ++i) {
      us.push_back(settled[i].us);
      mhz.push_back(settled[i].sm_mhz);
    }
    rounds.push_back({median(std::move(us)), median(std::move(mhz)), settled[end - 1].at_seconds});
  }
  return End::settled;
}

Result<Blocks::End> Blocks::sample_all(std::map<std::size_t, std::vector<Sample>>& taken) {
  std::vector<std::size_t> turn = order();
  if (turn.size() < 2) return End::not_comparable;
  for (int pass = 0; pass < kBlockPasses; ++pass) {
    for (const std::size_t entry : turn) {
      auto end = sample_block(entry, taken[entry]);
      if (!end || end.value() != End::settled) return end;
    }
    std::reverse(turn.begin(), turn.end());
  }
  return End::settled;
}

Result<void> Blocks::run() {
  std::map<std::size_t, std::vector<Sample>> taken;
  auto end = sample_all(taken);
  if (!end) return end.error();
  if (end.value() == End::failed) {
    std::erase_if(result_.finalists, [this](const RaceResult::Entry& entry) {
      return entry.contender == result_.failed.back().first;
    });
  }
  if (end.value() == End::settled) {
    for (const auto& [entry, more] : taken) {
      auto& samples = result_.finalists[entry].samples;
      samples.insert(samples.end(), more.begin(), more.end());
      result_.rounds.block_rounds = static_cast<int>(more.size());
    }
  }
  if (!result_.finalists.empty()) {
    result_.decision = judge(contenders_, result_.finalists, result_.rounds);
  }
  return {};
}

}  // namespace

bool power_limited(const RaceResult& result) {
  std::vector<double> clocks;
  for (std::size_t at = 0; at < result.finalists.size(); ++at) {
    if (result.decision.standings[at].slowdown.estimate > kBlockMargin) continue;
    std::vector<double> mhz;
    for (const Sample& sample : result.finalists[at].samples) mhz.push_back(sample.sm_mhz);
    clocks.push_back(median(std::move(mhz)));
  }
  if (clocks.size() < 2) return false;
  const auto [low, high] = std::minmax_element(clocks.begin(), clocks.end());
  return *low > 0 && *high > (1 + kClockSpread) * *low;
}

Result<void> race_in_blocks(Runner& runner, std::span<const Contender> contenders,
                            const RaceOptions& options, RaceResult& result) {
  return Blocks(runner, contenders, options, result).run();
}

}  // namespace kernwright
