#include "tuner/finals/interval.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "support/statistics.h"

namespace kernwright {
namespace {

/// The probability that an interval misses. The verdict is asked after 16, 32, 64, 128 and 256
/// rounds. With this probability at each look, all looks together stay below 1 %.
constexpr double kDoubt = 0.002;
/// If successive differences correlate more than this, they count as fewer than they are.
constexpr double kCorrelated = 0.2;

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

/// Returns the same for the n (n + 1) / 2 means of two of n values, each also paired with itself,
/// if these are symmetric: the largest k with 2 P(T < k) <= kDoubt, T being Wilcoxon's signed-rank
/// statistic.
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

/// Returns the interval of paired differences in the order of their rounds.
PairedInterval interval_of(std::vector<double> differences, Pairing pairing) {
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

}  // namespace

PairedInterval paired_interval(std::span<const double> logs, std::span<const double> other,
                               Pairing pairing) {
  std::vector<double> differences(std::min(logs.size(), other.size()));
  for (std::size_t i = 0; i < differences.size(); ++i) differences[i] = logs[i] - other[i];
  return interval_of(std::move(differences), pairing);
}

std::vector<double> log_times(std::span<const double> samples_us, std::span<const int> dropped) {
  std::vector<double> logs;
  for (std::size_t round = 0; round < samples_us.size(); ++round) {
    if (std::find(dropped.begin(), dropped.end(), static_cast<int>(round)) == dropped.end()) {
      logs.push_back(std::log(samples_us[round]));
    }
  }
  return logs;
}

}  // namespace kernwright
