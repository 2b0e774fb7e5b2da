#include "tuner/learning/gaussian_process.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

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
    columns_[c].apart.resize(features.levels(c));
    tabulate(columns_[c]);
  }
}

void GaussianProcess::tabulate(Column& column) const {
  const std::size_t levels = column.apart.size();
  column.apart[0] = {0, 1};
  for (std::size_t d = 1; d < levels; ++d) {
    const double share = static_cast<double>(d) / static_cast<double>(levels - 1);
    const double far = column.jump + column.slope * share;
    column.apart[d] = {far, std::exp(-far)};
  }
}

GaussianProcess::Adapted GaussianProcess::adapted(std::size_t index) {
  if (index == 2 * columns_.size()) return {noise_, kLeastNoise, kMostNoise, nullptr};
  if (index == 2 * columns_.size() + 1) return {mean_odds_, kLeast, kMost, nullptr};
  Column& column = columns_[index / 2];
  return {index % 2 == 0 ? column.jump : column.slope, kLeast, kMost, &column};
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

  pairs_.assign(row_start(rows.size()), {});
  for (std::size_t c = 0; c < columns_.size(); ++c) add_pairs(c, columns_[c].apart);
  double likelihood = decompose();
  for (int step = 0; step < steps; ++step) {
    const bool larger = turn_ % 2 == 1;
    const Adapted one = adapted(turn_++ / 2 % adapted_count());
    const double before = one.value;
    one.value = std::clamp(larger ? before * kStep : before / kStep, one.least, one.most);
    if (one.column != nullptr) exchange(*one.column);
    const double changed = decompose();
    if (changed > likelihood) {
      likelihood = changed;
      continue;
    }
    one.value = before;
    if (one.column != nullptr) exchange(*one.column);
  }
  decompose();
}

/// Brings the table of a column up to its jump and slope, and the pairs with it.
void GaussianProcess::exchange(Column& column) {
  std::vector<Pair> change = column.apart;
  tabulate(column);
  for (std::size_t d = 0; d < change.size(); ++d) {
    change[d] = {column.apart[d].far - change[d].far, column.apart[d].near - change[d].near};
  }
  add_pairs(static_cast<std::size_t>(&column - columns_.data()), change);
}

void GaussianProcess::add_pairs(std::size_t c, const std::vector<Pair>& apart) {
  const std::size_t n = targets_.size();
  const std::uint8_t* ordinal = ordinals_.data() + c * n;
  Pair* pair = pairs_.data();
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j <= i; ++j, ++pair) {
      const Pair& one = apart[static_cast<std::size_t>(std::abs(ordinal[i] - ordinal[j]))];
      pair->far += one.far;
      pair->near += one.near;
    }
  }
}

double GaussianProcess::likeness(const Pair& sum) const {
  const double part = columns_.empty() ? 0 : mean_odds_ / (1 + mean_odds_);
  const auto columns = static_cast<double>(std::max<std::size_t>(columns_.size(), 1));
  return (1 - part) * std::exp(-sum.far) + part / columns * sum.near;
}

double GaussianProcess::likeness(std::size_t a, std::size_t b) const {
  Pair sum;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    const std::uint8_t* ordinal = features_.column(c);
    const Pair& one =
        columns_[c].apart[static_cast<std::size_t>(std::abs(ordinal[a] - ordinal[b]))];
    sum.far += one.far;
    sum.near += one.near;
  }
  return likeness(sum);
}

/// To every row of the fit.
std::vector<double> GaussianProcess::likeness(std::size_t row) const {
  const std::size_t n = targets_.size();
  std::vector<Pair> sums(n);
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    const int own = features_.column(c)[row];
    const std::uint8_t* ordinal = ordinals_.data() + c * n;
    const Pair* apart = columns_[c].apart.data();
    for (std::size_t i = 0; i < n; ++i) {
      const Pair& one = apart[std::abs(ordinal[i] - own)];
      sums[i].far += one.far;
      sums[i].near += one.near;
    }
  }
  std::vector<double> alike;
  alike.reserve(n);
  for (const Pair& sum : sums) alike.push_back(likeness(sum));
  return alike;
}

/// Factor and weights for the parameters as they are; the logarithm of how likely they are, but for
/// a constant.
double GaussianProcess::decompose() {
  const std::size_t n = targets_.size();
  factor_.clear();
  for (const Pair& pair : pairs_) factor_.push_back(likeness(pair));
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
    prior += squared_log(column.jump / Column{}.jump) + squared_log(column.slope / Column{}.slope);
  }
  return -dot(targets_.data(), weights_.data(), n) / 2 - logarithms - kPrior * prior;
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

GaussianProcess::Estimate GaussianProcess::bound(std::size_t row) const {
  const std::vector<double> alike = likeness(row);
  const double most = *std::max_element(alike.begin(), alike.end());
  const double variance = 1 - most * most / (1 + noise_);
  const double mean = dot(alike.data(), weights_.data(), alike.size());
  return {mean_ + scale_ * mean, scale_ * std::sqrt(std::max(variance, kTiny))};
}

GaussianProcess::Outlook::Outlook(const GaussianProcess& process, std::size_t row)
    : process_(&process), row_(row), seen_(process.likeness(row)) {
  mean_ = dot(seen_.data(), process.weights_.data(), seen_.size());
  process.solve_lower(seen_);
  open_ = 1 - dot(seen_.data(), seen_.data(), seen_.size());
}

GaussianProcess::Estimate GaussianProcess::Outlook::estimate() const {
  return {process_->mean_ + process_->scale_ * mean_,
          process_->scale_ * std::sqrt(std::max(open_, kTiny))};
}

void GaussianProcess::Outlook::suppose(const Outlook& other) {
  const double shared =
      process_->likeness(row_, other.row_) - dot(seen_.data(), other.seen_.data(), seen_.size());
  seen_.push_back(shared / std::sqrt(std::max(other.open_ + process_->noise_, kTiny)));
  open_ -= seen_.back() * seen_.back();
}

}  // namespace kernwright::detail
