#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tuner/learning/boosted_trees.h"

namespace kernwright::detail {

/// Gaussian-process regression over ordinal features, for the few results that a search has.
///
/// The covariance of two candidates, here called their likeness, mixes two kernels over the
/// columns: a product (it learns from candidates that are near in every parameter) and a mean (it
/// learns what each parameter does on its own). In one column both use exp(-jump - slope *
/// distance), and 1 where the two agree. The distance is counted in ordinals, as a share of the
/// column's range. The jump serves names, the slope serves sizes. The hyperparameters (jumps,
/// slopes, the noise, the mean's part) climb the marginal likelihood, times a weak prior, one
/// coordinate at a time. The cost of a fit grows with the cube of the number of results.
class GaussianProcess {
 public:
  struct Estimate {
    double mean = 0;
    double deviation = 0;
  };

  /// The posterior at one row, with its covariance to the rows that were seen, so that it can be
  /// conditioned on further rows cheaply.
  class Outlook {
   public:
    Estimate estimate() const;
    /// Conditions this row on `other`, as if `other` had been measured at exactly its mean: the
    /// deviation becomes smaller and the mean stays. Both must have been conditioned on the same
    /// rows before.
    void suppose(const Outlook& other);

   private:
    friend GaussianProcess;
    Outlook(const GaussianProcess& process, std::size_t row);

    const GaussianProcess* process_;
    std::size_t row_;
    double mean_;               ///< in units of the process
    double open_;               ///< variance, in the same
    std::vector<double> seen_;  ///< its likeness to what was seen, by Cholesky's factor
  };

  /// `features` outlives it; at most 255 ordinals per column.
  explicit GaussianProcess(const FeatureTable& features);

  /// Replaces the training data by `rows` and their `targets`, of which there is at least one. Then
  /// it adapts the hyperparameters, beginning where the last fit ended: each of `steps` trials
  /// changes one of them and keeps the change if it makes the targets likelier.
  void fit(std::span<const std::size_t> rows, std::span<const double> targets, int steps);

  /// The posterior at `row`, valid until the next fit. The cost is quadratic in the training rows.
  Outlook outlook(std::size_t row) const { return {*this, row}; }
  /// The mean, and an upper bound of the deviation: the one that the single most similar training
  /// row would leave. The cost is linear in the training rows.
  Estimate bound(std::size_t row) const;

 private:
  /// Two rows in one column, or summed over all columns: `far` is the exponent of the product
  /// kernel, `near` the value that the mean kernel averages.
  struct Pair {
    double far = 0;
    double near = 0;
  };
  struct Column {
    double jump = 0.1;
    double slope = 0.5;
    std::vector<Pair> apart = {};  ///< by distance in ordinals
  };

  std::vector<double> likeness(std::size_t row) const;
  double likeness(std::size_t a, std::size_t b) const;
  double likeness(const Pair& sum) const;
  void tabulate(Column& column) const;
  void add_pairs(std::size_t column, const std::vector<Pair>& apart);
  void exchange(Column& column);
  double decompose();
  void solve_lower(std::vector<double>& b) const;
  void solve_upper(std::vector<double>& b) const;

  /// One of the numbers that `fit` adapts.
  struct Adapted {
    double& value;
    double least;
    double most;
    Column* column;  ///< whose table depends on it
  };
  Adapted adapted(std::size_t index);
  std::size_t adapted_count() const { return 2 * columns_.size() + 2; }

  const FeatureTable& features_;
  std::vector<Column> columns_;
  double mean_odds_ = 0.5;              ///< of the mean's part in likeness against the product's
  double noise_ = 1e-3;                 ///< variance, in units of the targets' own
  std::size_t turn_ = 0;                ///< the parameter to try next
  std::vector<std::uint8_t> ordinals_;  ///< of the rows, column by column
  std::vector<double> targets_;         ///< normalised
  double mean_ = 0;
  double scale_ = 1;
  std::vector<Pair> pairs_;      ///< of the rows, packed like the factor
  std::vector<double> factor_;   ///< Cholesky's, packed by rows
  std::vector<double> weights_;  ///< of the rows in a mean
};

}  // namespace kernwright::detail
