#include "tuner/finals/decision.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "cache/records/record_view.h"
#include "support/hash.h"
#include "support/statistics.h"
#include "tuner/finals/interval.h"
#include "tuner/finals/modes.h"

namespace kernwright {
namespace {

/// There may be too few rounds for an interval. A finalist is slower all the same if every round
/// says so, by more than this and by more than the rounds differ. Otherwise a default that is many
/// times slower would tie.
constexpr double kFar = 0.03;
/// A choice that is slower in this share of the rounds, and by `kFar`, is not kept.
constexpr double kMostRounds = 0.9;

/// The finals in logarithms, without the rounds that do not count.
class Finals {
 public:
  Finals(std::span<const RankedConfiguration> finalists, const FinalRounds& rounds, Pairing pairing)
      : finalists_(finalists), pairing_(pairing) {
    std::vector<std::vector<double>> logs;
    for (const RankedConfiguration& finalist : finalists) {
      logs.push_back(log_times(finalist.measurement.samples_us, rounds.dropped));
    }
    for (const auto* probe : {&rounds.sm_probe_us, &rounds.dram_probe_us}) {
      if (!probe->empty()) logs.push_back(log_times(*probe, rounds.dropped));
    }
    for (std::size_t i = 0; i < finalists.size(); ++i) {
      std::vector<std::span<const double>> others;
      for (std::size_t other = 0; other < logs.size(); ++other) {
        if (other != i) others.emplace_back(logs[other]);
      }
      judged_.push_back(slow_mode(logs[i], others));
    }
  }

  std::size_t rounds(std::size_t i) const { return judged_[i].logs.size(); }
  bool bimodal(std::size_t i) const { return judged_[i].bimodal; }
  PairedInterval slowdown(std::size_t i, std::size_t than) const {
    return paired_interval(judged_[i].logs, judged_[than].logs, pairing_);
  }

  /// The share of their common rounds in which it was slower.
  double share_slower(std::size_t i, std::size_t than) const {
    const std::size_t common = std::min(rounds(i), rounds(than));
    double slower = 0;
    for (std::size_t r = 0; r < common; ++r) {
      if (judged_[i].logs[r] > judged_[than].logs[r]) ++slower;
    }
    return slower / static_cast<double>(common);
  }

  /// The fastest over the first `least` rounds, of those that have them.
  std::size_t fastest(std::size_t least) const {
    std::vector<std::size_t> in;
    for (std::size_t i = 0; i < judged_.size(); ++i) {
      if (rounds(i) >= least) in.push_back(i);
    }
    std::vector<std::vector<double>> relative(in.size());
    std::vector<double> round(in.size());
    for (std::size_t r = 0; r < least; ++r) {
      for (std::size_t i = 0; i < in.size(); ++i) round[i] = judged_[in[i]].logs[r];
      const double middle = median(round);
      for (std::size_t i = 0; i < in.size(); ++i) relative[i].push_back(round[i] - middle);
    }
    std::vector<std::pair<double, Digest>> ranks;
    for (std::size_t i = 0; i < in.size(); ++i) {
      ranks.emplace_back(median(std::move(relative[i])), digest_of(finalists_[in[i]].choice.id()));
    }
    return in[static_cast<std::size_t>(std::min_element(ranks.begin(), ranks.end()) -
                                       ranks.begin())];
  }

 private:
  std::span<const RankedConfiguration> finalists_;
  Pairing pairing_;
  std::vector<SlowMode> judged_;  ///< of each finalist
};

/// Fills in everything but the slowdown. Returns false if the finalist may still change its place.
bool place(Standing& standing, const PairedInterval& interval, bool is_incumbent) {
  const auto [estimate, low, high] = standing.slowdown;
  if (!interval.known) {
    standing.out = low > std::max(kFar, high - low);
    standing.place = standing.out ? Standing::Place::slower : Standing::Place::open;
    return standing.out;
  }
  const double clear = std::max(kEquivalence, high - low);
  standing.out = low > clear;
  if (is_incumbent && low > 0 && !standing.out) {
    standing.place = Standing::Place::tied;  // more rounds may still dismiss it
    return high < kEquivalence;
  }
  if (low > 0 && estimate >= kDelta) {
    standing.place = Standing::Place::slower;
  } else if (low > 0 || high < kEquivalence) {
    standing.place = Standing::Place::tied;
  } else {
    standing.place = Standing::Place::open;
  }
  return standing.place != Standing::Place::open;
}

auto preference(const RankedConfiguration& finalist) {
  const Traits& t = finalist.traits;
  return std::tuple(!t.is_incumbent, !t.is_default, !t.is_predicted, !t.deterministic,
                    t.workspace_bytes, t.warned, t.resources.registers, t.smem_bytes,
                    digest_of(finalist.choice.id()));
}

/// Chooses the winner. `barred` may be empty. Otherwise it says of each finalist whether it loses
/// every tie with one that is not barred.
std::size_t choose(const Finals& finals, std::span<const RankedConfiguration> finalists,
                   const Decision& decision, const std::vector<bool>& barred) {
  const auto find = [&](bool Traits::* flag) {
    const auto found = std::find_if(finalists.begin(), finalists.end(),
                                    [&](const RankedConfiguration& f) { return f.traits.*flag; });
    return static_cast<std::size_t>(found - finalists.begin());
  };
  const std::size_t default_at = find(&Traits::is_default);
  const std::size_t predicted_at = find(&Traits::is_predicted);
  const bool has_default = default_at < finalists.size();
  // If differences drift, there are too few independent ones for an interval, however many rounds.
  const auto behind = [&](std::size_t i) {
    const Standing& own = decision.standings[i];
    return own.place == Standing::Place::open && own.slowdown.estimate >= kFar &&
           finals.rounds(i) >= kMinRounds && finals.share_slower(i, decision.leader) >= kMostRounds;
  };
  // Neither the default nor the predicted choice is new. If one of the two is open and the other
  // was measured faster, the open one yields.
  const auto yields = [&](std::size_t i, std::size_t other) {
    if (other == i || other >= finalists.size()) return false;
    const Standing& own = decision.standings[i];
    return own.place == Standing::Place::open && decision.standings[other].equal() &&
           own.slowdown.estimate >= decision.standings[other].slowdown.estimate + kEquivalence;
  };
  const auto eligible = [&](std::size_t i) {
    const Traits& traits = finalists[i].traits;
    if (!decision.standings[i].equal()) return false;
    if (i == decision.leader || traits.is_incumbent) return true;
    if (traits.is_default) return !behind(i) && !yields(i, predicted_at);
    if (traits.is_predicted) return !behind(i) && !yields(i, default_at);
    if (decision.standings[i].slowdown.estimate >= kEquivalence) return false;
    if (!has_default || decision.standings[default_at].equal()) return true;
    return finals.slowdown(default_at, i).slowdown.low > 0;
  };
  const auto rank = [&](std::size_t i) {
    return std::pair(!barred.empty() && barred[i], preference(finalists[i]));
  };
  std::size_t winner = decision.leader;
  for (std::size_t i = 0; i < finalists.size(); ++i) {
    if (eligible(i) && rank(i) < rank(winner)) winner = i;
  }
  return winner;
}

Decision decide_rounds(std::span<const RankedConfiguration> finalists, const FinalRounds& rounds,
                       Pairing pairing = Pairing::rounds, const std::vector<bool>& barred = {}) {
  Decision decision;
  std::size_t taken = 0;
  for (const RankedConfiguration& finalist : finalists) {
    taken = std::max(taken, finalist.measurement.samples_us.size());
  }
  decision.disturbed = 4 * rounds.dropped.size() > taken;
  FinalRounds judged = rounds;
  if (decision.disturbed) judged.dropped.clear();
  const Finals finals(finalists, judged, pairing);
  decision.standings.resize(finalists.size());
  std::size_t longest = 0;
  for (std::size_t i = 0; i < finalists.size(); ++i) longest = std::max(longest, finals.rounds(i));
  decision.leader = finals.fastest(longest);
  decision.settled = true;
  bool open = false;
  bool tied = false;
  for (std::size_t i = 0; i < finalists.size(); ++i) {
    Standing& standing = decision.standings[i];
    standing.bimodal = finals.bimodal(i);
    if (i == decision.leader) continue;
    // Who dropped out was slower than the fastest of then.
    std::size_t rival = finals.fastest(finals.rounds(i));
    if (rival == i) rival = decision.leader;
    const PairedInterval interval = finals.slowdown(i, rival);
    standing.slowdown = interval.slowdown;
    if (!place(standing, interval, finalists[i].traits.is_incumbent)) decision.settled = false;
    open = open || standing.place == Standing::Place::open;
    tied = tied || standing.place == Standing::Place::tied;
  }
  decision.verdict = open || decision.disturbed ? Verdict::unresolved
                     : tied                     ? Verdict::tie
                                                : Verdict::win;
  decision.winner = choose(finals, finalists, decision, barred);
  return decision;
}

/// Decides among the finalists that have blocks by these, and by the rounds if the blocks tie. The
/// other finalists keep the place that the rounds found.
Decision decide_blocks(std::span<const RankedConfiguration> finalists, const FinalRounds& rounds) {
  const std::size_t interleaved = rounds.sm_probe_us.size();
  std::vector<RankedConfiguration> by_rounds(finalists.begin(), finalists.end());
  std::vector<RankedConfiguration> by_blocks;
  std::vector<std::size_t> in_blocks;
  for (std::size_t i = 0; i < finalists.size(); ++i) {
    std::vector<double>& samples = by_rounds[i].measurement.samples_us;
    // Records of old do not say who is in blocks, but those then had all rounds.
    if (!finalists[i].in_blocks && samples.size() <= interleaved) continue;
    const auto begin = samples.end() - rounds.block_rounds;
    by_blocks.push_back({.choice = finalists[i].choice,
                         .measurement = {{begin, samples.end()}},
                         .traits = finalists[i].traits});
    in_blocks.push_back(i);
    samples.erase(begin, samples.end());
  }
  Decision decision = decide_rounds(by_rounds, rounds);
  std::vector<bool> slower_in_rounds;
  for (const std::size_t i : in_blocks) {
    slower_in_rounds.push_back(!decision.standings[i].equal());
  }
  const Decision blocks = decide_rounds(by_blocks, {}, Pairing::blocks, slower_in_rounds);
  decision.winner = in_blocks[blocks.winner];
  decision.leader = in_blocks[blocks.leader];
  decision.verdict = blocks.verdict;
  for (std::size_t i = 0; i < in_blocks.size(); ++i) {
    decision.standings[in_blocks[i]] = blocks.standings[i];
  }
  for (std::size_t i = 0; i < finalists.size(); ++i) {
    const bool out = std::find(in_blocks.begin(), in_blocks.end(), i) == in_blocks.end();
    if (!out || !decision.standings[i].equal()) continue;
    if (decision.standings[i].place == Standing::Place::leader) {
      decision.standings[i].place = Standing::Place::tied;
    }
    if (decision.verdict == Verdict::win) decision.verdict = Verdict::tie;
  }
  return decision;
}

}  // namespace

Decision decide(std::span<const RankedConfiguration> finalists, const FinalRounds& rounds) {
  return rounds.block_rounds > 0 ? decide_blocks(finalists, rounds)
                                 : decide_rounds(finalists, rounds);
}

Decision decide(const TuningRecord& record) {
  std::vector<RankedConfiguration> finalists{record.winner};
  finalists.insert(finalists.end(), record.runners_up.begin(), record.runners_up.end());
  Decision decision = decide(finalists, record.rounds);
  if (hardly_looked(record)) decision.verdict = Verdict::unresolved;
  return decision;
}

}  // namespace kernwright
