#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tuner/learning/feature_table.h"

namespace kernwright::detail {

/// Gaussian-process regression over ordinal features, for the few results that a search has.
///
/// The covariance of two candidates mixes two kernels over the columns: a product kernel (it learns
/// from candidates that are near in every parameter) and an additive kernel (it learns the effect
/// of each parameter on its own). In one column both use exp(-nugget - distance / length_scale),
/// and 1 if the two agree. The distance is counted in ordinals, as a share of the column's range.
/// The nugget serves names, the length scale serves sizes. The hyperparameters (nuggets, length
/// scales, the noise, the additive kernel's share) climb the marginal likelihood, times a weak
/// prior, one coordinate at a time. The cost of a fit grows with the cube of the number of results.
///
/// Source: Rasmussen and Williams, Gaussian Processes for Machine Learning, chapters 2 and 5.
class GaussianProcess {
 public:
  struct Normal {
    double mean = 0;
    double deviation = 0;
  };

  /// The posterior at one row, with its covariance to the training rows, so that it can be
  /// conditioned on further rows cheaply.
  class Posterior {
   public:
    Normal marginal() const;
    /// Conditions this row on `other`, as if `other` had been measured at exactly its mean: the
    /// deviation becomes smaller and the mean stays. Both must have been conditioned on the same
    /// rows before.
    void condition_on(const Posterior& other);

   private:
    friend GaussianProcess;
    Posterior(const GaussianProcess& process, std::size_t row);

    const GaussianProcess* process_;
    std::size_t row_;
    double mean_;      ///< of normalised targets
    double variance_;  ///< of the same
    /// The inverse of the Cholesky factor times the covariance to the training rows.
    std::vector<double> whitened_;
  };

  /// `features` outlives it; at most 255 ordinals per column.
  explicit GaussianProcess(const FeatureTable& features);

  /// Replaces the training data by `rows` and their `targets`, of which there is at least one. Then
  /// it adapts the hyperparameters, beginning with the result of the last fit: each of `steps`
  /// trials changes one of them and keeps the change if it makes the targets likelier.
  void fit(std::span<const std::size_t> rows, std::span<const double> targets, int steps);

  /// The posterior at `row`, valid until the next fit. The cost is quadratic in the training rows.
  Posterior posterior(std::size_t row) const { return {*this, row}; }
  /// The mean, and an upper bound of the deviation: the one that the training row of the largest
  /// covariance alone would leave. The cost is linear in the training rows.
  Normal bound(std::size_t row) const;

 private:
  /// Terms of two rows in one column, or summed over all columns.
  struct Terms {
    double exponent = 0;  ///< of the product kernel, negated
    double additive = 0;  ///< what the additive kernel averages
  };
  struct Column {
    double nugget = 0.1;
    double length_scale = 2;
    std::vector<Terms> by_distance = {};  ///< in ordinals
  };

  std::vector<double> covariance(std::size_t row) const;
  double covariance(std::size_t a, std::size_t b) const;
  double covariance(const Terms& sum) const;
  void tabulate(Column& column) const;
  void add_terms(std::size_t column, const std::vector<Terms>& by_distance);
  void tabulate_again(Column& column);
  double factorise();
  void solve_lower(std::vector<double>& b) const;
  void solve_upper(std::vector<double>& b) const;

  /// One of the numbers that `fit` adapts.
  struct Hyperparameter {
    double& value;
    double least;
    double most;
    Column* column;  ///< whose table depends on it
  };
  Hyperparameter hyperparameter(std::size_t index);
  std::size_t hyperparameters() const { return 2 * columns_.size() + 2; }

  const FeatureTable& features_;
  std::vector<Column> columns_;
  double additive_odds_ = 0.5;          ///< of the additive kernel's share against the product's
  double noise_ = 1e-3;                 ///< variance, of normalised targets
  std::size_t turn_ = 0;                ///< the hyperparameter to try next
  std::vector<std::uint8_t> ordinals_;  ///< of the training rows, column by column
  std::vector<double> targets_;         ///< normalised
  double mean_ = 0;                     ///< of the targets
  double scale_ = 1;                    ///< their standard deviation
  std::vector<Terms> terms_;            ///< of the training rows, packed like the factor
  std::vector<double> factor_;          ///< Cholesky's, of the covariance matrix, packed by rows
  std::vector<double> weights_;         ///< the inverse covariance matrix times the targets
};

}  // namespace kernwright::detail
