#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tuner/learning/boosted_trees.h"

namespace kernwright::detail {

/// A picture of few results: learns how quickly times change along each parameter, and says how
/// much it does not know. In one column two candidates are alike as exp(-jump - slope * distance),
/// 1 where they agree, with distances in ordinals as shares of the column's range, so that names
/// and sizes are both served. Over all columns likeness is part product (what was seen nearby),
/// part mean (what each parameter does on its own). Cost grows with the cube of the results given
/// to it.
class GaussianProcess {
 public:
  struct Estimate {
    double mean = 0;
    double deviation = 0;
  };

  /// What is known of one row, and how it hangs together with others.
  class Outlook {
   public:
    Estimate estimate() const;
    /// Narrows it by what `other` would leave open here, measured as expected: no mean changes.
    /// `other` has seen the same ones as this.
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

  /// Takes `rows` with their `targets`, at least one, for all that is known, and adapts jumps,
  /// slopes, noise and the mean's part a little further than the fits before did: `steps` trials,
  /// each of which changes one of them if that makes the targets likelier.
  void fit(std::span<const std::size_t> rows, std::span<const double> targets, int steps);

  /// Good until the next fit. Quadratic in the rows.
  Outlook outlook(std::size_t row) const { return {*this, row}; }
  /// The mean, and a deviation that is not below the exact one: what the row most alike leaves
  /// open. Linear in the rows.
  Estimate bound(std::size_t row) const;

 private:
  /// How unlike two rows are for the product, how alike for the mean: in one column, or summed up.
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
