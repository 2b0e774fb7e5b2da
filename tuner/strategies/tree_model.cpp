#include "tuner/strategies/tree_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "support/processes/threads.h"

namespace kernwright::detail {
namespace {

constexpr std::size_t kScored = 20'000;
/// So many of the ranking are kept: more than are asked for between two fits.
constexpr std::size_t kKept = 256;
/// Deviations below the mean that candidates are ranked by: what is not known yet comes early.
constexpr double kRankedSpreads = 1.5;
/// The same of what a search may still find, which should be likely.
constexpr double kOptimisticSpreads = 0.5;

}  // namespace

void TreeModel::fit(const std::function<bool(std::size_t)>& allowed) {
  std::vector<std::size_t> results = board_.results();
  std::sort(results.begin(), results.end());
  std::vector<std::size_t> timed;
  std::vector<double> targets;
  std::vector<double> failed;
  for (const std::size_t i : results) {
    failed.push_back(board_.failed(i) ? 1 : 0);
    if (!board_.ok(i)) continue;
    timed.push_back(i);
    targets.push_back(board_.log_us(i));
  }
  ++fits_;
  fitted_ = !timed.empty();
  if (!fitted_) return;
  has_failures_ = timed.size() < results.size();
  parallel_for(kEnsemble + (has_failures_ ? 1 : 0), [&](std::size_t m) {
    if (m < kEnsemble) {
      times_[m].fit(features_, timed, targets, hash_at(seed_, m));
    } else {
      failures_.fit(features_, results, failed, hash_at(seed_, m));
    }
  });

  std::vector<std::size_t> open;
  for (std::size_t i = 0; i < board_.size(); ++i) {
    if (!board_.taken(i) && allowed(i)) open.push_back(i);
  }
  if (open.size() > kScored) {
    RandomDraws(hash_at(seed_, kEnsemble + fits_)).shuffle(open);
    open.resize(kScored);
  }
  rank(std::move(open));
}

void TreeModel::rank(std::vector<std::size_t> open) {
  ranking_.clear();
  const std::vector<double> bounds = lower(open, kRankedSpreads);
  const std::vector<bool> failing = fails(open);
  std::vector<Ranked> all;
  for (std::size_t k = 0; k < open.size(); ++k) {
    if (!failing[k]) all.push_back({bounds[k], open[k], 0});
  }
  const std::size_t kept = std::min(all.size(), kKept);
  // Leaves make many equal bounds: those are taken in an order of chance, not of the space.
  const std::uint64_t salt = hash_at(seed_, fits_);
  std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(kept), all.end(),
                    [salt](const Ranked& a, const Ranked& b) {
                      if (a.lower != b.lower) return a.lower < b.lower;
                      return hash_at(salt, a.candidate) < hash_at(salt, b.candidate);
                    });
  all.resize(kept);
  std::vector<std::size_t> first;
  for (const Ranked& ranked : all) first.push_back(ranked.candidate);
  const std::vector<double> likely = lower(first, kOptimisticSpreads);
  for (std::size_t k = 0; k < kept; ++k) all[k].optimistic = likely[k];
  ranking_.assign(all.begin(), all.end());
}

std::vector<double> TreeModel::lower(std::span<const std::size_t> rows, double spreads) const {
  std::array<std::vector<double>, kEnsemble> predictions;
  parallel_for(kEnsemble,
               [&](std::size_t m) { predictions[m] = times_[m].predict(features_, rows); });
  std::vector<double> sums(rows.size(), 0.0);
  std::vector<double> squares(rows.size(), 0.0);
  for (const std::vector<double>& predicted : predictions) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      sums[i] += predicted[i];
      squares[i] += predicted[i] * predicted[i];
    }
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double mean = sums[i] / kEnsemble;
    const double variance = std::max(0.0, squares[i] / kEnsemble - mean * mean);
    sums[i] = mean - spreads * std::sqrt(variance);
  }
  return sums;
}

std::vector<bool> TreeModel::fails(std::span<const std::size_t> rows) const {
  std::vector<bool> failing(rows.size(), false);
  if (!has_failures_) return failing;
  const std::vector<double> chance = failures_.predict(features_, rows);
  for (std::size_t i = 0; i < rows.size(); ++i) failing[i] = chance[i] > 0.5;
  return failing;
}

std::optional<std::size_t> TreeModel::next() {
  while (!ranking_.empty()) {
    const Ranked first = ranking_.front();
    if (first.lower > board_.best_log_us() + kHopelessLog) return std::nullopt;
    ranking_.pop_front();
    if (!board_.taken(first.candidate)) return first.candidate;
  }
  return std::nullopt;
}

std::vector<std::size_t> TreeModel::best(std::size_t count) const {
  std::vector<std::size_t> open;
  for (const Ranked& ranked : ranking_) {
    if (open.size() == count) break;
    if (!board_.taken(ranked.candidate)) open.push_back(ranked.candidate);
  }
  return open;
}

std::optional<double> TreeModel::optimistic_log_us() const {
  std::optional<double> least;
  for (const Ranked& ranked : ranking_) {
    if (board_.taken(ranked.candidate)) continue;
    least = std::min(least.value_or(ranked.optimistic), ranked.optimistic);
  }
  return least;
}

}  // namespace kernwright::detail
