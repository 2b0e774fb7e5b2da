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
/// A plan for blocks. In each block the first `settling` part is left out, and the rest counts as
/// `rounds` values. Passes go A B C, then C B A, and so on.
struct Plan {
  double seconds = 0;
  double settling = 0;
  int passes = 0;
  std::size_t rounds = 0;
};
/// An H200 sets its clock anew every 16 ms or so, by up to some percent, and reaches the clock of a
/// new kernel after 4 to 32 ms. So a short block is one value, and there are many of them. The
/// number of passes is even, so that drift hits all finalists alike.
constexpr Plan kShort{0.056, 0.5, 12, 1};
/// Where the short blocks leave the verdict open and there is time, as many follow again, up to
/// this number of passes.
constexpr int kMostPasses = 48;
constexpr Plan kLook{0.1, 0.5, 1, 8};
/// A long block lasts `kSettlings` times the device's settling time, but at least a second.
constexpr Plan kLong{1, 0.5, 4, 8};
constexpr double kSettlings = 3;
constexpr std::size_t kBlockOrder = 4;        ///< samples per call within a block
constexpr std::size_t kMostInBlock = 20'000;  ///< where the clock stands still

class Blocks {
 public:
  Blocks(Runner& runner, std::span<const Contender> contenders, const RaceOptions& options,
         RaceResult& result)
      : runner_(runner), contenders_(contenders), options_(options), result_(result) {}

  Result<void> run();

 private:
  /// How a block ended.
  enum class End { settled, failed, not_comparable, no_time };
  using Taken = std::map<std::size_t, std::vector<Sample>>;  ///< by entry of the result

  std::vector<std::size_t> within_reach() const;
  std::vector<std::size_t> best_alone(const Taken& alone) const;
  bool ends_by(double until, std::size_t blocks, double seconds) const {
    return options_.clock_seconds() + static_cast<double>(blocks) * seconds <= until;
  }
  Plan plan() const;
  Result<End> sample_block(std::size_t entry, const Plan& plan, std::vector<Sample>& rounds);
  Result<End> look_alone(Taken& alone);
  Result<End> sample_all(std::vector<std::size_t> turn, double until, Taken& taken);
  bool want_more() const {
    return !options_.long_blocks && result_.decision.verdict == Verdict::unresolved &&
           result_.rounds.block_rounds < kMostPasses;
  }
  Result<void> end(End how);
  void doubt(std::string detail) {
    result_.audit.merge({{{"power_blocks", Trust::b, std::move(detail)}}});
  }

  Runner& runner_;
  std::span<const Contender> contenders_;
  const RaceOptions& options_;
  RaceResult& result_;
};

double median_of(const std::vector<Sample>& samples, double Sample::* member) {
  std::vector<double> values;
  for (const Sample& sample : samples) values.push_back(sample.*member);
  return median(std::move(values));
}

/// The mean of the middle half. Where the clock alternates between two values, a median would be
/// one of them.
double midmean(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto cut = static_cast<std::ptrdiff_t>(values.size() / 4);
  return std::accumulate(values.begin() + cut, values.end() - cut, 0.0) /
         static_cast<double>(static_cast<std::ptrdiff_t>(values.size()) - 2 * cut);
}

/// Compares each clock by its ratio to the first finalist's in the same round, since all clocks
/// drift.
bool clocks_differ(const std::map<std::size_t, std::vector<Sample>>& taken, double spread) {
  const std::vector<Sample>& first = taken.begin()->second;
  std::vector<double> clocks;
  for (const auto& [entry, samples] : taken) {
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

/// The entries of the result that may turn out the best when they run alone. The default and the
/// incumbent are treated like any other.
std::vector<std::size_t> Blocks::within_reach() const {
  std::vector<std::size_t> entries;
  for (std::size_t at = 0; at < result_.finalists.size(); ++at) {
    if (result_.decision.standings[at].slowdown.estimate <= kReach) entries.push_back(at);
  }
  return entries;
}

/// The winner of the rounds and the best of the others. The winner takes part so that a tie can
/// favour it.
std::vector<std::size_t> Blocks::best_alone(const Taken& alone) const {
  std::map<std::size_t, double> us;
  std::vector<std::size_t> order;
  for (const auto& [entry, samples] : alone) {
    us[entry] = median_of(samples, &Sample::us);
    order.push_back(entry);
  }
  const auto rank = [&](std::size_t at) {
    return std::pair(at != result_.decision.winner, us.at(at));
  };
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return rank(a) < rank(b); });
  order.resize(std::min(order.size(), kBlockFinalists));
  return order;
}

Plan Blocks::plan() const {
  if (!options_.long_blocks) return kShort;
  Plan plan = kLong;
  plan.seconds = std::max(plan.seconds, kSettlings * options_.settle_seconds);
  return plan;
}

/// One finalist alone, long enough for the clock to settle.
Result<Blocks::End> Blocks::sample_block(std::size_t entry, const Plan& plan,
                                         std::vector<Sample>& rounds) {
  const std::size_t contender = result_.finalists[entry].contender;
  const std::vector<Runner::Id> order(kBlockOrder, contenders_[contender].id);
  const int epoch = runner_.epoch();
  const double start = options_.clock_seconds();
  std::vector<Sample> settled;
  for (std::size_t taken = 0;
       options_.clock_seconds() - start < plan.seconds && taken < kMostInBlock;
       taken += order.size()) {
    KW_ASSIGN(auto sampled, runner_.sample(order));
    for (const Runner::Sampled& one : sampled) {
      if (one.step.outcome == Outcome::ok) continue;
      result_.failed.emplace_back(contender, one.step);
      return End::failed;
    }
    if (runner_.epoch() != epoch) return End::not_comparable;
    if (options_.clock_seconds() - start <= plan.settling * plan.seconds) continue;
    for (const Runner::Sampled& one : sampled) settled.push_back(one.sample);
  }
  if (settled.size() < plan.rounds) return End::not_comparable;
  for (std::size_t part = 0; part < plan.rounds; ++part) {
    std::vector<double> us;
    std::vector<double> mhz;
    const std::size_t end = (part + 1) * settled.size() / plan.rounds;
    for (std::size_t i = part * settled.size() / plan.rounds; i < end; ++i) {
      us.push_back(settled[i].us);
      mhz.push_back(settled[i].sm_mhz);
    }
    rounds.push_back(
        {midmean(std::move(us)), midmean(std::move(mhz)), settled[end - 1].at_seconds});
  }
  return End::settled;
}

Result<Blocks::End> Blocks::look_alone(Taken& alone) {
  const std::vector<std::size_t> entries = within_reach();
  if (entries.size() < 2) return End::settled;
  if (!ends_by(options_.alone_until, entries.size(), kLook.seconds)) return End::no_time;
  for (const std::size_t entry : entries) {
    auto end = sample_block(entry, kLook, alone[entry]);
    if (!end || end.value() != End::settled) return end;
  }
  return End::settled;
}

Result<Blocks::End> Blocks::sample_all(std::vector<std::size_t> turn, double until, Taken& taken) {
  const Plan plan = this->plan();
  const std::size_t blocks = static_cast<std::size_t>(plan.passes) * turn.size();
  if (!ends_by(until, blocks, plan.seconds)) return End::no_time;
  for (int pass = 0; pass < plan.passes; ++pass) {
    for (const std::size_t entry : turn) {
      auto end = sample_block(entry, plan, taken[entry]);
      if (!end || end.value() != End::settled) return end;
    }
    std::reverse(turn.begin(), turn.end());
  }
  return End::settled;
}

/// Without blocks the rounds decide.
Result<void> Blocks::end(End how) {
  if (how == End::failed) {
    std::erase_if(result_.finalists, [this](const RaceResult::Entry& entry) {
      return entry.contender == result_.failed.back().first;
    });
  }
  if (how == End::no_time) {
    doubt("there was no time for finalists to run alone");
  } else if (how != End::settled) {
    doubt("a finalist's own clock is not known");
  }
  if (!result_.finalists.empty()) {
    result_.decision = judge(contenders_, result_.finalists, result_.rounds);
  }
  return {};
}

Result<void> Blocks::run() {
  Taken alone;
  KW_ASSIGN(auto looked, look_alone(alone));
  if (looked != End::settled) return end(looked);
  if (alone.empty()) return {};
  result_.power_limited = clocks_differ(alone, kClockSpread);
  if (!result_.power_limited) return {};

  const std::vector<std::size_t> turn = best_alone(alone);
  do {
    const bool first = result_.rounds.block_rounds == 0;
    Taken taken;
    KW_ASSIGN(const End how,
              sample_all(turn, first ? options_.alone_until : options_.extend_until, taken));
    if (how == End::failed || (first && how != End::settled)) return end(how);
    if (how != End::settled) break;
    if (first) {
      result_.power_limited = clocks_differ(taken, kPairedClockSpread);
      if (!result_.power_limited) return {};
      if (!options_.long_blocks) doubt("the finalists' clocks differ; short blocks decided");
    }
    for (const auto& [entry, more] : taken) {
      RaceResult::Entry& finalist = result_.finalists[entry];
      finalist.samples.insert(finalist.samples.end(), more.begin(), more.end());
      finalist.in_blocks = true;
    }
    result_.rounds.block_rounds += static_cast<int>(taken.begin()->second.size());
    result_.decision = judge(contenders_, result_.finalists, result_.rounds);
  } while (want_more());
  return {};
}

}  // namespace

Result<void> race_alone(Runner& runner, std::span<const Contender> contenders,
                        const RaceOptions& options, RaceResult& result) {
  return Blocks(runner, contenders, options, result).run();
}

}  // namespace kernwright
