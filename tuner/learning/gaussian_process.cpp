#include "tuner/learning/gaussian_process.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

namespace kernwright::detail {
namespace {

constexpr double kLeast = 0.005;  ///< of nuggets and odds
constexpr double kMost = 20;
constexpr double kLeastLengthScale = 0.05;
constexpr double kMostLengthScale = 200;
constexpr double kLeastNoise = 1e-5;
constexpr double kMostNoise = 0.2;
constexpr double kStep = 3;  ///< factor by which a number is tried larger and smaller
/// Weight of the belief that hyperparameters of columns are what they begin with, against the
/// likelihood.
constexpr double kPriorWeight = 0.05;
constexpr double kTiny = 1e-9;

std::size_t row_start(std::size_t i) { return i * (i + 1) / 2; }

double squared_log(double ratio) { return std::log(ratio) * std::log(ratio); }

/// In several sums, so that none waits for another.
double dot(const double* a, const double* b, std::size_t n) {
  constexpr std::size_t kLanes = 8;
  std::array<double, kLanes> sums{};
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::size_t l = 0; l < kLanes; ++l) sums[l] += a[i + l] * b[i + l];
  }
  double sum = 0;
  for (; i < n; ++i) sum += a[i] * b[i];
  for (const double lane : sums) sum += lane;
  return sum;
}

}  // namespace

GaussianProcess::GaussianProcess(const FeatureTable& features)
    : features_(features), columns_(features.columns()) {
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    columns_[c].by_distance.resize(features.levels(c));
    tabulate(columns_[c]);
  }
}

void GaussianProcess::tabulate(Column& column) const {
  const std::size_t levels = column.by_distance.size();
  column.by_distance[0] = {0, 1};
  for (std::size_t d = 1; d < levels; ++d) {
    const double share = static_cast<double>(d) / static_cast<double>(levels - 1);
    const double exponent = column.nugget + share / column.length_scale;
    column.by_distance[d] = {exponent, std::exp(-exponent)};
  }
}

GaussianProcess::Hyperparameter GaussianProcess::hyperparameter(std::size_t index) {
  if (index == 2 * columns_.size()) return {noise_, kLeastNoise, kMostNoise, nullptr};
  if (index == 2 * columns_.size() + 1) return {additive_odds_, kLeast, kMost, nullptr};
  Column& column = columns_[index / 2];
  if (index % 2 == 0) return {column.nugget, kLeast, kMost, &column};
  return {column.length_scale, kLeastLengthScale, kMostLengthScale, &column};
}

void GaussianProcess::fit(std::span<const std::size_t> rows, std::span<const double> targets,
                          int steps) {
  ordinals_.clear();
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    for (const std::size_t row : rows) ordinals_.push_back(features_.column(c)[row]);
  }
  targets_.assign(targets.begin(), targets.end());
  const auto count = static_cast<double>(targets_.size());
  mean_ = 0;
  for (const double target : targets_) mean_ += target / count;
  double variance = 0;
  for (const double target : targets_) variance += (target - mean_) * (target - mean_) / count;
  scale_ = std::sqrt(std::max(variance, kTiny));
  for (double& target : targets_) target = (target - mean_) / scale_;

  terms_.assign(row_start(rows.size()), {});
  for (std::size_t c = 0; c < columns_.size(); ++c) add_terms(c, columns_[c].by_distance);
  double likelihood = factorise();
  for (int step = 0; step < steps; ++step) {
    const bool larger = turn_ % 2 == 1;
    const Hyperparameter one = hyperparameter(turn_++ / 2 % hyperparameters());
    const double before = one.value;
    one.value = std::clamp(larger ? before * kStep : before / kStep, one.least, one.most);
    if (one.column != nullptr) tabulate_again(*one.column);
    const double changed = factorise();
    if (changed > likelihood) {
      likelihood = changed;
      continue;
    }
    one.value = before;
    if (one.column != nullptr) tabulate_again(*one.column);
  }
  factorise();
}

/// Brings the table of a column up to its hyperparameters, and the terms with it.
void GaussianProcess::tabulate_again(Column& column) {
  std::vector<Terms> change = column.by_distance;
  tabulate(column);
  for (std::size_t d = 0; d < change.size(); ++d) {
    const Terms& now = column.by_distance[d];
    change[d] = {now.exponent - change[d].exponent, now.additive - change[d].additive};
  }
  add_terms(static_cast<std::size_t>(&column - columns_.data()), change);
}

void GaussianProcess::add_terms(std::size_t c, const std::vector<Terms>& by_distance) {
  const std::size_t n = targets_.size();
  const std::uint8_t* ordinal = ordinals_.data() + c * n;
  Terms* sum = terms_.data();
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j <= i; ++j, ++sum) {
      const Terms& one = by_distance[static_cast<std::size_t>(std::abs(ordinal[i] - ordinal[j]))];
      sum->exponent += one.exponent;
      sum->additive += one.additive;
    }
  }
}

double GaussianProcess::covariance(const Terms& sum) const {
  const double share = columns_.empty() ? 0 : additive_odds_ / (1 + additive_odds_);
  const auto columns = static_cast<double>(std::max<std::size_t>(columns_.size(), 1));
  return (1 - share) * std::exp(-sum.exponent) + share / columns * sum.additive;
}

double GaussianProcess::covariance(std::size_t a, std::size_t b) const {
  Terms sum;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    const std::uint8_t* ordinal = features_.column(c);
    const Terms& one =
        columns_[c].by_distance[static_cast<std::size_t>(std::abs(ordinal[a] - ordinal[b]))];
    sum.exponent += one.exponent;
    sum.additive += one.additive;
  }
  return covariance(sum);
}

/// With every training row.
std::vector<double> GaussianProcess::covariance(std::size_t row) const {
  const std::size_t n = targets_.size();
  std::vector<Terms> sums(n);
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    const int own = features_.column(c)[row];
    const std::uint8_t* ordinal = ordinals_.data() + c * n;
    const Terms* by_distance = columns_[c].by_distance.data();
    for (std::size_t i = 0; i < n; ++i) {
      const Terms& one = by_distance[std::abs(ordinal[i] - own)];
      sums[i].exponent += one.exponent;
      sums[i].additive += one.additive;
    }
  }
  std::vector<double> covariances;
  covariances.reserve(n);
  for (const Terms& sum : sums) covariances.push_back(covariance(sum));
  return covariances;
}

/// Factor and weights for the hyperparameters as they are. Returns the logarithm of the targets'
/// marginal likelihood times the prior, but for a constant.
double GaussianProcess::factorise() {
  const std::size_t n = targets_.size();
  factor_.clear();
  for (const Terms& sum : terms_) factor_.push_back(covariance(sum));
  double logarithms = 0;
  for (std::size_t i = 0; i < n; ++i) {
    double* own = factor_.data() + row_start(i);
    for (std::size_t j = 0; j < i; ++j) {
      const double* other = factor_.data() + row_start(j);
      own[j] = (own[j] - dot(own, other, j)) / other[j];
    }
    own[i] = std::sqrt(std::max(1 + noise_ - dot(own, own, i), kTiny));
    logarithms += std::log(own[i]);
  }
  weights_ = targets_;
  solve_lower(weights_);
  solve_upper(weights_);
  double prior = 0;
  for (const Column& column : columns_) {
    prior += squared_log(column.nugget / Column{}.nugget) +
             squared_log(column.length_scale / Column{}.length_scale);
  }
  return -dot(targets_.data(), weights_.data(), n) / 2 - logarithms - kPriorWeight * prior;
}

void GaussianProcess::solve_lower(std::vector<double>& b) const {
  for (std::size_t i = 0; i < b.size(); ++i) {
    const double* row = factor_.data() + row_start(i);
    b[i] = (b[i] - dot(row, b.data(), i)) / row[i];
  }
}

void GaussianProcess::solve_upper(std::vector<double>& b) const {
  for (std::size_t i = b.size(); i-- > 0;) {
    const double* row = factor_.data() + row_start(i);
    b[i] /= row[i];
    for (std::size_t k = 0; k < i; ++k) b[k] -= row[k] * b[i];
  }
}

GaussianProcess::Normal GaussianProcess::bound(std::size_t row) const {
  const std::vector<double> covariances = covariance(row);
  const double most = *std::max_element(covariances.begin(), covariances.end());
  const double variance = 1 - most * most / (1 + noise_);
  const double mean = dot(covariances.data(), weights_.data(), covariances.size());
  return {mean_ + scale_ * mean, scale_ * std::sqrt(std::max(variance, kTiny))};
}

GaussianProcess::Posterior::Posterior(const GaussianProcess& process, std::size_t row)
    : process_(&process), row_(row), whitened_(process.covariance(row)) {
  mean_ = dot(whitened_.data(), process.weights_.data(), whitened_.size());
  process.solve_lower(whitened_);
  variance_ = 1 - dot(whitened_.data(), whitened_.data(), whitened_.size());
}

GaussianProcess::Normal GaussianProcess::Posterior::marginal() const {
  return {process_->mean_ + process_->scale_ * mean_,
          process_->scale_ * std::sqrt(std::max(variance_, kTiny))};
}

void GaussianProcess::Posterior::condition_on(const Posterior& other) {
  const double shared = process_->covariance(row_, other.row_) -
                        dot(whitened_.data(), other.whitened_.data(), whitened_.size());
  whitened_.push_back(shared / std::sqrt(std::max(other.variance_ + process_->noise_, kTiny)));
  variance_ -= whitened_.back() * whitened_.back();
}

}  // namespace kernwright::detail
