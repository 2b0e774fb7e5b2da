#include "tuner/strategies/gaussian_process.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

namespace kernwright::detail {
namespace {

constexpr double kLeast = 0.005;  ///< of jumps, slopes and odds
constexpr double kMost = 20;
constexpr double kLeastNoise = 1e-5;
constexpr double kMostNoise = 0.2;
constexpr double kStep = 3;  ///< factor by which a number is tried larger and smaller
/// Weight of the belief that jumps are about 0.1 and slopes about 0.5, against the likelihood.
constexpr double kPrior = 0.05;
constexpr double kTiny = 1e-9;

std::size_t row_start(std::size_t i) { return i * (i + 1) / 2; }

double squared_log(double ratio) { return std::log(ratio) * std::log(ratio); }

}  // namespace

GaussianProcess::GaussianProcess(const FeatureTable& features)
    : features_(features), columns_(features.columns()) {
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    columns_[c].exponents.resize(features.levels(c));
    columns_[c].likeness.resize(features.levels(c));
    tabulate(columns_[c]);
  }
}

void GaussianProcess::tabulate(Column& column) const {
  const std::size_t levels = column.exponents.size();
  column.exponents[0] = 0;
  column.likeness[0] = 1;
  for (std::size_t d = 1; d < levels; ++d) {
    const double share = static_cast<double>(d) / static_cast<double>(levels - 1);
    column.exponents[d] = column.jump + column.slope * share;
    column.likeness[d] = std::exp(-column.exponents[d]);
  }
}

GaussianProcess::Adapted GaussianProcess::adapted(std::size_t index) {
  if (index == 2 * columns_.size()) return {noise_, kLeastNoise, kMostNoise, nullptr};
  if (index == 2 * columns_.size() + 1) return {mean_odds_, kLeast, kMost, nullptr};
  Column& column = columns_[index / 2];
  return {index % 2 == 0 ? column.jump : column.slope, kLeast, kMost, &column};
}

void GaussianProcess::fit(std::vector<std::size_t> rows, std::span<const double> targets,
                          int steps) {
  rows_ = std::move(rows);
  targets_.assign(targets.begin(), targets.end());
  const auto count = static_cast<double>(targets_.size());
  mean_ = 0;
  for (const double target : targets_) mean_ += target / count;
  double variance = 0;
  for (const double target : targets_) variance += (target - mean_) * (target - mean_) / count;
  scale_ = std::sqrt(std::max(variance, kTiny));
  for (double& target : targets_) target = (target - mean_) / scale_;

  double likelihood = decompose();
  for (int step = 0; step < steps; ++step) {
    const bool larger = turn_ % 2 == 1;
    const Adapted one = adapted(turn_++ / 2 % adapted_count());
    const double before = one.value;
    one.value = std::clamp(larger ? before * kStep : before / kStep, one.least, one.most);
    if (one.column != nullptr) tabulate(*one.column);
    const double changed = decompose();
    if (changed > likelihood) {
      likelihood = changed;
      continue;
    }
    one.value = before;
    if (one.column != nullptr) tabulate(*one.column);
  }
  decompose();
}

void GaussianProcess::add(std::size_t row, double target) {
  std::vector<double> next = likeness(row);
  solve_lower(next);
  double rest = 1 + noise_;
  for (const double x : next) rest -= x * x;
  next.push_back(std::sqrt(std::max(rest, kTiny)));
  factor_.insert(factor_.end(), next.begin(), next.end());
  rows_.push_back(row);
  targets_.push_back((target - mean_) / scale_);
  update_weights();
}

GaussianProcess::Estimate GaussianProcess::estimate(std::size_t row) const {
  std::vector<double> alike = likeness(row);
  double mean = 0;
  for (std::size_t i = 0; i < alike.size(); ++i) mean += alike[i] * weights_[i];
  solve_lower(alike);
  double variance = 1;
  for (const double x : alike) variance -= x * x;
  return {mean_ + scale_ * mean, scale_ * std::sqrt(std::max(variance, kTiny))};
}

GaussianProcess::Estimate GaussianProcess::bound(std::size_t row) const {
  const std::vector<double> alike = likeness(row);
  double mean = 0;
  double most = 0;
  for (std::size_t i = 0; i < alike.size(); ++i) {
    mean += alike[i] * weights_[i];
    most = std::max(most, alike[i]);
  }
  const double variance = 1 - most * most / (1 + noise_);
  return {mean_ + scale_ * mean, scale_ * std::sqrt(std::max(variance, kTiny))};
}

/// To every row of the fit.
std::vector<double> GaussianProcess::likeness(std::size_t row) const {
  std::vector<double> far(rows_.size(), 0.0);
  std::vector<double> sums(rows_.size(), 0.0);
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    const std::uint8_t* ordinal = features_.column(c);
    const int own = ordinal[row];
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const auto distance = static_cast<std::size_t>(std::abs(ordinal[rows_[i]] - own));
      far[i] += columns_[c].exponents[distance];
      sums[i] += columns_[c].likeness[distance];
    }
  }
  const double part = columns_.empty() ? 0 : mean_odds_ / (1 + mean_odds_);
  const double each = part / static_cast<double>(std::max<std::size_t>(columns_.size(), 1));
  for (std::size_t i = 0; i < far.size(); ++i) {
    far[i] = (1 - part) * std::exp(-far[i]) + each * sums[i];
  }
  return far;
}

/// Factor and weights for the parameters as they are; the logarithm of how likely they are, but for
/// a constant.
double GaussianProcess::decompose() {
  const std::size_t n = rows_.size();
  factor_.resize(row_start(n));
  double logarithms = 0;
  std::vector<std::size_t> rows = std::exchange(rows_, {});
  for (std::size_t i = 0; i < n; ++i) {
    // Alike to the rows before this one.
    const std::vector<double> alike = likeness(rows[i]);
    double* own = factor_.data() + row_start(i);
    double rest = 1 + noise_;
    for (std::size_t j = 0; j < i; ++j) {
      const double* other = factor_.data() + row_start(j);
      double sum = alike[j];
      for (std::size_t k = 0; k < j; ++k) sum -= own[k] * other[k];
      own[j] = sum / other[j];
      rest -= own[j] * own[j];
    }
    own[i] = std::sqrt(std::max(rest, kTiny));
    logarithms += std::log(own[i]);
    rows_.push_back(rows[i]);
  }
  update_weights();
  double fit = 0;
  for (std::size_t i = 0; i < n; ++i) fit += targets_[i] * weights_[i];
  double prior = 0;
  for (const Column& column : columns_) {
    prior += squared_log(column.jump / Column{}.jump) + squared_log(column.slope / Column{}.slope);
  }
  return -fit / 2 - logarithms - kPrior * prior;
}

void GaussianProcess::update_weights() {
  weights_ = targets_;
  solve_lower(weights_);
  solve_upper(weights_);
}

void GaussianProcess::solve_lower(std::vector<double>& b) const {
  for (std::size_t i = 0; i < b.size(); ++i) {
    const double* row = factor_.data() + row_start(i);
    double sum = b[i];
    for (std::size_t k = 0; k < i; ++k) sum -= row[k] * b[k];
    b[i] = sum / row[i];
  }
}

void GaussianProcess::solve_upper(std::vector<double>& b) const {
  for (std::size_t i = b.size(); i-- > 0;) {
    const double* row = factor_.data() + row_start(i);
    b[i] /= row[i];
    for (std::size_t k = 0; k < i; ++k) b[k] -= row[k] * b[i];
  }
}

}  // namespace kernwright::detail
