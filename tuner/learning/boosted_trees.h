#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tuner/learning/random_draws.h"

namespace kernwright::detail {

/// Features of all candidates as small ordinals, column by column: trees only ask whether a value
/// lies above a cut. A column keeps its distinct values in order; of more than 255, as many
/// quantiles. NaN (a feature that the candidate's template lacks) comes before all values.
class FeatureTable {
 public:
  /// `rows` are equally long. Columns in which all candidates agree are left out.
  explicit FeatureTable(const std::vector<std::vector<double>>& rows);

  std::size_t rows() const { return rows_; }
  std::size_t columns() const { return levels_.size(); }
  /// How many ordinals the column has, at least 2.
  std::size_t levels(std::size_t column) const { return levels_[column]; }
  const std::uint8_t* column(std::size_t c) const { return ordinals_.data() + c * rows_; }

 private:
  std::size_t rows_;
  std::vector<std::size_t> levels_;
  std::vector<std::uint8_t> ordinals_;
};

/// Gradient boosting on squared error with symmetric trees: all nodes of a level share one cut, so
/// that a leaf's number is a few comparisons. Few, strong constraints suit the few hundred results
/// that a search has.
class BoostedTrees {
 public:
  /// Fits `targets[i]` at row `rows[i]`; at least one row. The same input gives the same trees.
  void fit(const FeatureTable& features, std::span<const std::size_t> rows,
           std::span<const double> targets, std::uint64_t seed);

  /// Predictions for `rows`.
  std::vector<double> predict(const FeatureTable& features,
                              std::span<const std::size_t> rows) const;

 private:
  static constexpr std::size_t kDepth = 4;
  static constexpr std::size_t kLeaves = std::size_t{1} << kDepth;
  struct Fit;
  struct Sum;
  struct Cut {
    std::size_t column = 0;
    std::uint8_t level = 0;  ///< above it: the upper side
  };
  struct Tree {
    std::vector<Cut> cuts;
    std::array<double, kLeaves> leaves{};
  };

  static std::optional<Cut> best_cut(const Fit& fit, std::size_t nodes, RandomDraws& draws);

  double base_ = 0;
  std::vector<Tree> trees_;
  std::vector<std::size_t> columns_;  ///< that they cut
};

}  // namespace kernwright::detail
