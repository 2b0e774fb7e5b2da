#include "tuner/strategies/bayesian_search.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <unordered_set>

#include "tuner/learning/feature_columns.h"
#include "tuner/strategies/first_choices.h"

namespace kernwright::detail {
namespace {

constexpr std::size_t kFewest = 8;  ///< results that a fit begins with
constexpr std::size_t kRefit = 16;  ///< results between two fits
constexpr std::size_t kRows = 160;
constexpr std::size_t kPool = 1500;
constexpr std::size_t kAround = 10;    ///< the best whose neighbours are in the pool
constexpr std::size_t kFarAround = 2;  ///< the best whose neighbours' neighbours are too
constexpr std::size_t kOfOrder = 100;
constexpr std::size_t kAtRandom = 200;
constexpr std::size_t kExact = 128;  ///< of the pool, whose deviation is worked out
constexpr std::size_t kBatch = 16;
/// Steps of adapting the hyperparameters per fit; each costs the cube of the rows, so that fewer
/// are taken of many.
constexpr std::size_t kMostSteps = 32;
constexpr std::size_t kFewestSteps = 16;
constexpr std::size_t kCheapRows = 64;
/// Slower than the best by this (in logarithms) is all the same.
constexpr double kClip = 0.8;
/// A candidate that is expected to be slower than the best by this is left to others.
constexpr double kHopelessLog = 0.405;  // ln 1.5
/// The weight of results against the belief in the predictions: the sum of squares of the results'
/// logarithms about their mean that counts as much as the belief.
constexpr double kBelief = 0.5;
/// An improvement by less is none.
constexpr double kLeastGain = 0.005;

/// Returns by how much a time is expected to be below the best, whose logarithm is 0.
double expected_improvement(double mean, double deviation) {
  const double gain = -kLeastGain - mean;
  const double z = gain / deviation;
  const double below = std::erfc(-z / std::numbers::sqrt2) / 2;
  const double density = std::exp(-z * z / 2) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
  return deviation * (z * below + density);
}

FeatureTable parameters_of(const SearchSpace& space) {
  FeatureColumns columns;
  for (std::size_t i = 0; i < space.configurations.size(); ++i) {
    columns.begin_row();
    columns.set("template", space.template_of[i]);
    for (const auto& [name, value] : space.configurations[i]->values()) {
      columns.set(name, static_cast<double>(value));
    }
  }
  return FeatureTable(columns.take());
}

std::vector<double> predicted_log_of(const SearchSpace& space) {
  std::vector<double> logs(space.predicted_us.size(), 0.0);
  if (!has_predictions(space)) return logs;
  const double least = *std::min_element(space.predicted_us.begin(), space.predicted_us.end());
  for (std::size_t i = 0; i < logs.size(); ++i) {
    logs[i] = std::min(std::log(space.predicted_us[i] / least), kClip);
  }
  return logs;
}

double mean(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// The slope of `measured` over `predicted`, by ridge regression towards 1, in [0, 1].
double regression_slope(std::span<const double> predicted, std::span<const double> measured) {
  const double x = mean(predicted);
  const double y = mean(measured);
  double squares = kBelief;
  double products = kBelief;
  for (std::size_t i = 0; i < predicted.size(); ++i) {
    squares += (predicted[i] - x) * (predicted[i] - x);
    products += (predicted[i] - x) * (measured[i] - y);
  }
  return std::clamp(products / squares, 0.0, 1.0);
}

}  // namespace

BayesianSearch::BayesianSearch(const SearchSpace& space, const Neighbourhood& neighbourhood,
                               const Board& board, std::span<const std::size_t> order,
                               std::uint64_t seed)
    : neighbourhood_(neighbourhood),
      board_(board),
      order_(order),
      draws_(seed),
      parameters_(parameters_of(space)),
      process_(parameters_),
      failures_(parameters_),
      predicted_log_(predicted_log_of(space)) {}

std::optional<std::size_t> BayesianSearch::next() {
  if (!fitted() || board_.results().size() >= fitted_results_ + kRefit) fit();
  while (!queue_.empty()) {
    const std::size_t next = queue_.front();
    queue_.pop_front();
    if (!board_.taken(next)) return next;
  }
  return std::nullopt;
}

double BayesianSearch::expected_log(std::size_t candidate) const {
  return prior_mean(candidate) + process_.bound(candidate).mean;
}

void BayesianSearch::fit() {
  std::vector<std::size_t> rows;
  for (const std::size_t i : board_.results()) {
    if (board_.ok(i)) rows.push_back(i);
  }
  if (rows.size() < kFewest) return;
  std::sort(rows.begin(), rows.end(), [this](std::size_t a, std::size_t b) {
    return board_.log_us(a) != board_.log_us(b) ? board_.log_us(a) < board_.log_us(b) : a < b;
  });
  const std::vector<std::size_t> best(
      rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(std::min(rows.size(), kAround)));
  if (rows.size() > kRows) {
    // The best half, and an even selection of the others.
    constexpr std::size_t kHalf = kRows / 2;
    const std::size_t others = rows.size() - kHalf;
    for (std::size_t k = 0; k < kHalf; ++k) rows[kHalf + k] = rows[kHalf + k * others / kHalf];
    rows.resize(kRows);
  }
  std::vector<double> predicted;
  std::vector<double> measured;
  for (const std::size_t i : rows) {
    predicted.push_back(predicted_log_[i]);
    measured.push_back(std::min(board_.log_us(i) - board_.best_log_us(), kClip));
  }
  slope_ = regression_slope(predicted, measured);
  std::vector<double> errors;  // of the prior mean
  for (std::size_t k = 0; k < rows.size(); ++k) {
    errors.push_back(measured[k] - slope_ * predicted[k]);
  }
  process_.fit(rows, errors, steps(rows.size(), !fitted()));
  fitted_results_ = board_.results().size();
  fit_failures();
  queue_.clear();
  choose(pool(best));
}

/// Learns from the last results which candidates fail.
void BayesianSearch::fit_failures() {
  const std::vector<std::size_t>& results = board_.results();
  const std::size_t count = std::min(results.size(), kRows);
  const std::span<const std::size_t> rows = std::span(results).last(count);
  std::vector<double> failed;
  for (const std::size_t i : rows) failed.push_back(board_.failed(i) ? 1 : 0);
  if (std::find(failed.begin(), failed.end(), 1.0) == failed.end()) return;
  failures_.fit(rows, failed, steps(count, !saw_failures_));
  saw_failures_ = true;
}

int BayesianSearch::steps(std::size_t rows, bool first) const {
  const std::size_t usual =
      std::clamp(kMostSteps * kCheapRows * kCheapRows / (rows * rows), kFewestSteps, kMostSteps);
  const std::size_t once = 4 * parameters_.columns() + 4;  // each number larger and smaller
  return static_cast<int>(first ? std::max(once, usual) : usual);
}

bool BayesianSearch::fails(std::size_t candidate) const {
  return saw_failures_ && failures_.bound(candidate).mean > 0.5;
}

std::vector<std::size_t> BayesianSearch::pool(std::span<const std::size_t> best) {
  std::vector<std::size_t> pool;
  std::unordered_set<std::size_t> in;
  const auto add = [&](std::size_t i) {
    if (pool.size() < kPool && !board_.taken(i) && in.insert(i).second) pool.push_back(i);
  };
  for (const std::size_t i : best) {
    for (const std::size_t near : neighbourhood_.of(i)) add(near);
  }
  std::size_t of_order = 0;
  for (const std::size_t i : order_) {
    if (board_.taken(i)) continue;
    if (of_order++ == kOfOrder) break;
    add(i);
  }
  for (std::size_t k = 0; k < kAtRandom; ++k) add(draws_.below(board_.size()));
  for (const std::size_t i : best.first(std::min(best.size(), kFarAround))) {
    for (const std::size_t near : neighbourhood_.of(i)) {
      for (const std::size_t far : neighbourhood_.of(near)) add(far);
    }
  }
  return pool;
}

void BayesianSearch::choose(std::span<const std::size_t> pool) {
  struct Bounded {
    std::size_t candidate;
    double improvement;
  };
  std::vector<Bounded> bounded;
  for (const std::size_t i : pool) {
    const GaussianProcess::Normal bound = process_.bound(i);
    const double mean = prior_mean(i) + bound.mean;
    if (mean < kHopelessLog && !fails(i))
      bounded.push_back({i, expected_improvement(mean, bound.deviation)});
  }
  const std::size_t exact = std::min(bounded.size(), kExact);
  std::partial_sort(bounded.begin(), bounded.begin() + static_cast<std::ptrdiff_t>(exact),
                    bounded.end(), [](const Bounded& a, const Bounded& b) {
                      return a.improvement != b.improvement ? a.improvement > b.improvement
                                                            : a.candidate < b.candidate;
                    });
  struct Option {
    std::size_t candidate;
    GaussianProcess::Posterior posterior;
  };
  std::vector<Option> options;
  for (std::size_t k = 0; k < exact; ++k) {
    options.push_back({bounded[k].candidate, process_.posterior(bounded[k].candidate)});
  }
  while (queue_.size() < kBatch && !options.empty()) {
    std::vector<double> improvement;
    for (const Option& option : options) {
      const auto [mean, deviation] = option.posterior.marginal();
      improvement.push_back(expected_improvement(prior_mean(option.candidate) + mean, deviation));
    }
    const auto most = std::max_element(improvement.begin(), improvement.end());
    const auto place = most - improvement.begin();
    const Option chosen = options[static_cast<std::size_t>(place)];
    options.erase(options.begin() + place);
    for (Option& option : options) option.posterior.condition_on(chosen.posterior);
    queue_.push_back(chosen.candidate);
  }
}

}  // namespace kernwright::detail
