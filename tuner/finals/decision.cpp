#include "tuner/finals/decision.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <tuple>

#include "support/hash.h"
#include "support/statistics.h"

namespace kernwright {
namespace {

/// The probability that an interval misses. The verdict is asked after 16, 32, 64, 128 and 256
/// rounds. With this probability at each look, all looks together stay below 1 %.
constexpr double kDoubt = 0.002;
/// Where successive differences correlate more than this, they count as fewer than they are.
constexpr double kCorrelated = 0.2;
/// There may be too few rounds for an interval. A finalist is slower all the same if every round
/// says so, by more than this and by more than the rounds differ. Otherwise a default that is many
/// times slower would tie.
constexpr double kFar = 0.03;
/// Two groups of samples that are closer than this are one.
constexpr double kModeGap = 0.03;
/// A group has at least this share of the samples. A few outliers are no group.
constexpr double kModeShare = 0.2;
/// The gap between two groups is wider than this many times the spread within them.
constexpr double kModeSpreads = 6;

/// The number of pairs k such that the k-th smallest and k-th largest of n enclose the median with
/// probability 1 - kDoubt: the largest k with 2 P(Binomial(n, 1/2) < k) <= kDoubt; 0 if there is
/// none.
int order_statistic(int n) {
  double probability = std::pow(0.5, n);
  double below = 0;
  for (int k = 0; k < n; ++k) {
    below += probability;
    if (2 * below > kDoubt) return k;
    probability *= static_cast<double>(n - k) / (k + 1);
  }
  return 0;
}

/// Correlation of successive values, by ranks, so that an outlier counts as one value.
double successive_correlation(std::span<const double> values) {
  const std::size_t n = values.size();
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> rank(n);  // around 0, equal values share theirs
  for (std::size_t from = 0, to = 0; from < n; from = to) {
    while (to < n && values[order[to]] == values[order[from]]) ++to;
    const double shared = (static_cast<double>(from + to) - static_cast<double>(n)) / 2;
    for (std::size_t i = from; i < to; ++i) rank[order[i]] = shared;
  }
  double products = 0;
  double squares = 0;
  for (std::size_t i = 0; i < n; ++i) {
    squares += rank[i] * rank[i];
    if (i > 0) products += rank[i] * rank[i - 1];
  }
  return squares > 0 ? products / squares : 0;
}

/// The same of the n (n + 1) / 2 means of two of n values, each with itself too, where these lie
/// symmetrically: the largest k with 2 P(T < k) <= kDoubt, T Wilcoxon's signed-rank statistic.
int signed_rank_statistic(int n) {
  std::vector<double> ways{1};  // in which some of the ranks 1 to n add up to the index
  for (int rank = 1; rank <= n; ++rank) {
    ways.resize(ways.size() + static_cast<std::size_t>(rank));
    for (std::size_t sum = ways.size(); sum-- > static_cast<std::size_t>(rank);) {
      ways[sum] += ways[sum - static_cast<std::size_t>(rank)];
    }
  }
  double below = 0;
  for (int k = 0; k < static_cast<int>(ways.size()); ++k) {
    below += ways[static_cast<std::size_t>(k)] * std::pow(0.5, n);
    if (2 * below > kDoubt) return k;
  }
  return 0;
}

std::vector<double> pairwise_means(std::span<const double> values) {
  std::vector<double> means;
  for (std::size_t i = 0; i < values.size(); ++i) {
    for (std::size_t j = i; j < values.size(); ++j) means.push_back((values[i] + values[j]) / 2);
  }
  return means;
}

struct Comparison {
  Slowdown slowdown;
  bool known = false;  ///< there were rounds enough for the interval
};

/// Where the samples come from. Little is known about the noise of rounds. The noise of blocks
/// comes from the clock and is the same for all finalists, so that differences are symmetric. It is
/// large, and there are few blocks.
enum class Pairing { rounds, blocks };

/// Of paired differences in the order of their rounds.
Comparison compare(std::vector<double> differences, Pairing pairing = Pairing::rounds) {
  const auto n = static_cast<int>(differences.size());
  const double correlation = successive_correlation(differences);
  // By chance alone it exceeds 1 / sqrt(n) in one of six cases.
  const bool correlated = correlation > std::max(kCorrelated, 1 / std::sqrt(n));
  const double independent = correlated ? n * (1 - correlation) / (1 + correlation) : n;
  auto whole = static_cast<int>(independent);
  int k = 0;
  if (pairing == Pairing::blocks) {
    k = signed_rank_statistic(whole);
    whole = whole * (whole + 1) / 2;
    differences = pairwise_means(differences);
  } else {
    k = order_statistic(whole);
  }
  std::sort(differences.begin(), differences.end());
  const auto last = static_cast<int>(differences.size()) - 1;
  // The same quantile of all differences as the k-th of as many independent ones.
  const int at = k > 0 ? (k - 1) * (last + 1) / whole : 0;
  return {{median(differences), differences[static_cast<std::size_t>(at)],
           differences[static_cast<std::size_t>(last - at)]},
          k > 0};
}

std::vector<double> difference(std::span<const double> a, std::span<const double> b) {
  std::vector<double> result(std::min(a.size(), b.size()));
  for (std::size_t i = 0; i < result.size(); ++i) result[i] = a[i] - b[i];
  return result;
}

/// The logarithms of the samples of rounds that count.
std::vector<double> counted(std::span<const double> samples, std::span<const int> dropped) {
  std::vector<double> logs;
  for (std::size_t round = 0; round < samples.size(); ++round) {
    if (std::find(dropped.begin(), dropped.end(), static_cast<int>(round)) == dropped.end()) {
      logs.push_back(std::log(samples[round]));
    }
  }
  return logs;
}

/// The finals in logarithms, without the rounds that do not count.
class Finals {
 public:
  Finals(std::span<const Finalist> finalists, const FinalRounds& rounds, Pairing pairing)
      : finalists_(finalists), pairing_(pairing), bimodal_(finalists.size(), false) {
    for (const Finalist& f : finalists) logs_.push_back(counted(f.samples_us, rounds.dropped));
    for (const auto* reference : {&rounds.sm_reference_us, &rounds.dram_reference_us}) {
      if (!reference->empty()) references_.push_back(counted(*reference, rounds.dropped));
    }
    std::vector<std::vector<double>> judged;
    for (std::size_t i = 0; i < logs_.size(); ++i) judged.push_back(slow_mode(i));
    logs_ = std::move(judged);
  }

  std::size_t rounds(std::size_t i) const { return logs_[i].size(); }
  bool bimodal(std::size_t i) const { return bimodal_[i]; }
  Comparison slowdown(std::size_t i, std::size_t than) const {
    return compare(difference(logs_[i], logs_[than]), pairing_);
  }

  /// The fastest over the first `least` rounds, of those that have them.
  std::optional<std::size_t> fastest(std::size_t least) const {
    std::vector<std::size_t> in;
    for (std::size_t i = 0; i < logs_.size(); ++i) {
      if (logs_[i].size() >= least) in.push_back(i);
    }
    std::vector<std::vector<double>> relative(in.size());
    std::vector<double> round(in.size());
    for (std::size_t r = 0; r < least; ++r) {
      for (std::size_t i = 0; i < in.size(); ++i) round[i] = logs_[in[i]][r];
      const double middle = median(round);
      for (std::size_t i = 0; i < in.size(); ++i) relative[i].push_back(round[i] - middle);
    }
    std::optional<std::size_t> best;
    std::tuple<double, Digest> best_rank;
    for (std::size_t i = 0; i < in.size(); ++i) {
      std::tuple rank(median(relative[i]), digest_of(finalists_[in[i]].traits.id));
      if (best && best_rank <= rank) continue;
      best = in[i];
      best_rank = rank;
    }
    return best;
  }

 private:
  struct Modes {
    double between = 0;
    double distance = 0;
  };

  /// Samples relative to what the others and the references did in the same round.
  std::vector<double> relative_to_others(std::size_t i) const {
    std::vector<std::pair<const std::vector<double>*, double>> others;
    const auto add = [&](const std::vector<double>& logs) {
      if (logs.size() >= logs_[i].size()) others.emplace_back(&logs, median(logs));
    };
    for (std::size_t other = 0; other < logs_.size(); ++other) {
      if (other != i) add(logs_[other]);
    }
    for (const auto& reference : references_) add(reference);
    std::vector<double> result = logs_[i];
    if (others.empty()) return result;
    std::vector<double> round(others.size());
    for (std::size_t r = 0; r < result.size(); ++r) {
      for (std::size_t other = 0; other < others.size(); ++other) {
        round[other] = (*others[other].first)[r] - others[other].second;
      }
      result[r] -= median(round);
    }
    return result;
  }

  static std::optional<Modes> find_modes(std::vector<double> sorted) {
    std::sort(sorted.begin(), sorted.end());
    const std::size_t n = sorted.size();
    const auto least = static_cast<std::size_t>(std::ceil(kModeShare * static_cast<double>(n)));
    std::size_t split = 0;
    for (std::size_t at = std::max<std::size_t>(least, 2); at + least <= n; ++at) {
      const double gap = sorted[at] - sorted[at - 1];
      if (split == 0 || gap > sorted[split] - sorted[split - 1]) split = at;
    }
    if (split == 0) return std::nullopt;
    const double gap = sorted[split] - sorted[split - 1];
    const auto part = [&](std::size_t from, std::size_t to) {
      const std::span mode(sorted.data() + from, to - from);
      const double middle = median({mode.begin(), mode.end()});
      std::vector<double> deviations;
      for (const double value : mode) deviations.push_back(std::abs(value - middle));
      return std::pair(middle, median(std::move(deviations)));
    };
    const auto [fast, fast_spread] = part(0, split);
    const auto [slow, slow_spread] = part(split, n);
    if (gap <= std::max(kModeGap, kModeSpreads * std::max(fast_spread, slow_spread))) {
      return std::nullopt;
    }
    return Modes{sorted[split - 1] + gap / 2, slow - fast};
  }

  /// The logarithms by which to judge: a sample of the fast mode counts as if it had been slow.
  std::vector<double> slow_mode(std::size_t i) {
    std::vector<double> logs = logs_[i];
    const std::vector<double> relative = relative_to_others(i);
    if (const std::optional<Modes> modes = find_modes(relative)) {
      bimodal_[i] = true;
      for (std::size_t r = 0; r < logs.size(); ++r) {
        if (relative[r] < modes->between) logs[r] += modes->distance;
      }
    }
    return logs;
  }

  std::span<const Finalist> finalists_;
  Pairing pairing_;
  std::vector<std::vector<double>> logs_;
  std::vector<std::vector<double>> references_;
  std::vector<bool> bimodal_;
};

/// Fills in everything but the slowdown. False where the finalist may still change its place.
bool place(Standing& standing, const Comparison& comparison, bool is_incumbent) {
  const auto [estimate, low, high] = standing.slowdown;
  if (!comparison.known) {
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

auto preference(const Traits& t) {
  return std::tuple(!t.is_incumbent, !t.is_default, !t.deterministic, t.workspace_bytes, t.warned,
                    t.registers, t.smem_bytes, digest_of(t.id));
}

/// Chooses the winner. `barred` may be empty. Otherwise it says of each finalist whether it loses
/// every tie with one that is not barred.
std::size_t choose(const Finals& finals, std::span<const Finalist> finalists,
                   const Decision& decision, const std::vector<bool>& barred) {
  const auto find = [&](bool Traits::* flag) {
    const auto found = std::find_if(finalists.begin(), finalists.end(),
                                    [&](const Finalist& f) { return f.traits.*flag; });
    return static_cast<std::size_t>(found - finalists.begin());
  };
  const std::size_t standard = find(&Traits::is_default);
  const bool has_default = standard < finalists.size();
  if (decision.disturbed) {
    if (const std::size_t incumbent = find(&Traits::is_incumbent); incumbent < finalists.size()) {
      return incumbent;
    }
    if (has_default) return standard;
  }
  const auto eligible = [&](std::size_t i) {
    const Traits& traits = finalists[i].traits;
    if (!decision.standings[i].equal()) return false;
    if (i == decision.leader || traits.is_incumbent || traits.is_default) return true;
    if (decision.standings[i].slowdown.estimate >= kEquivalence) return false;
    if (!has_default || decision.standings[standard].equal()) return true;
    return finals.slowdown(standard, i).slowdown.low > 0;
  };
  const auto rank = [&](std::size_t i) {
    return std::pair(!barred.empty() && barred[i], preference(finalists[i].traits));
  };
  std::size_t winner = decision.leader;
  for (std::size_t i = 0; i < finalists.size(); ++i) {
    if (eligible(i) && rank(i) < rank(winner)) winner = i;
  }
  return winner;
}

Decision decide_rounds(std::span<const Finalist> finalists, const FinalRounds& rounds,
                       Pairing pairing = Pairing::rounds, const std::vector<bool>& barred = {}) {
  const Finals finals(finalists, rounds, pairing);
  Decision decision;
  decision.standings.resize(finalists.size());
  std::size_t longest = 0;
  std::size_t taken = 0;
  for (std::size_t i = 0; i < finalists.size(); ++i) {
    longest = std::max(longest, finals.rounds(i));
    taken = std::max(taken, finalists[i].samples_us.size());
  }
  decision.disturbed = 4 * rounds.dropped.size() > taken;
  decision.leader = *finals.fastest(longest);
  decision.settled = true;
  bool open = false;
  bool tied = false;
  for (std::size_t i = 0; i < finalists.size(); ++i) {
    Standing& standing = decision.standings[i];
    standing.bimodal = finals.bimodal(i);
    if (i == decision.leader) continue;
    // Who dropped out was slower than the fastest of then.
    std::size_t rival = *finals.fastest(finals.rounds(i));
    if (rival == i) rival = decision.leader;
    const Comparison comparison = finals.slowdown(i, rival);
    standing.slowdown = comparison.slowdown;
    if (!place(standing, comparison, finalists[i].traits.is_incumbent)) decision.settled = false;
    open = open || standing.place == Standing::Place::open;
    tied = tied || standing.place == Standing::Place::tied;
  }
  decision.verdict = open || decision.disturbed ? Verdict::unresolved
                     : tied                     ? Verdict::tie
                                                : Verdict::win;
  decision.winner = choose(finals, finalists, decision, barred);
  return decision;
}

/// Blocks decide among the finalists that have them. Where blocks tie, the rounds decide. The other
/// finalists stand where the rounds left them.
Decision decide_blocks(std::span<const Finalist> finalists, const FinalRounds& rounds) {
  const std::size_t interleaved = rounds.sm_reference_us.size();
  std::vector<Finalist> by_rounds(finalists.begin(), finalists.end());
  std::vector<Finalist> by_blocks;
  std::vector<std::size_t> in_blocks;
  for (std::size_t i = 0; i < finalists.size(); ++i) {
    std::vector<double>& samples = by_rounds[i].samples_us;
    // Records of old do not say who is in blocks, but those then had all rounds.
    if (!finalists[i].in_blocks && samples.size() <= interleaved) continue;
    const auto begin = samples.end() - rounds.block_rounds;
    by_blocks.push_back({finalists[i].traits, {begin, samples.end()}});
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

Slowdown paired_slowdown(std::span<const double> samples, std::span<const double> leader) {
  return compare(difference(counted(samples, {}), counted(leader, {}))).slowdown;
}

Decision decide(std::span<const Finalist> finalists, const FinalRounds& rounds) {
  return rounds.block_rounds > 0 ? decide_blocks(finalists, rounds)
                                 : decide_rounds(finalists, rounds);
}

Decision decide(const TuningRecord& record) {
  std::vector<Finalist> finalists;
  const auto add = [&](const RankedConfiguration& ranked) {
    finalists.push_back({{.id = ranked.choice.id(),
                          .is_incumbent = ranked.is_incumbent,
                          .is_default = ranked.is_default,
                          .deterministic = ranked.deterministic,
                          .workspace_bytes = ranked.workspace_bytes,
                          .warned = ranked.warned,
                          .registers = ranked.resources.registers,
                          .smem_bytes = ranked.smem_bytes},
                         ranked.measurement.samples_us,
                         ranked.in_blocks});
  };
  add(record.winner);
  for (const RankedConfiguration& ranked : record.runners_up) add(ranked);
  Decision decision = decide(finalists, record.rounds);
  if (hardly_looked(record)) decision.verdict = Verdict::unresolved;
  return decision;
}

bool hardly_looked(int ended, int candidates) { return ended < std::min(kFewestLooks, candidates); }

bool hardly_looked(const TuningRecord& record) {
  const std::string& reason = record.search.stop_reason;
  return record.grade == RecordGrade::measured && (reason == "budget" || reason == "trials") &&
         hardly_looked(record.measured + record.search.failed, record.candidates);
}

}  // namespace kernwright
