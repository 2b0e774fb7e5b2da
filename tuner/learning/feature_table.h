#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kernwright::detail {

/// Features of all candidates as small ordinals, column by column. A column keeps its distinct
/// values in order; of more than 255, as many quantiles. NaN (a feature that the candidate's
/// template lacks) comes before all values.
class FeatureTable {
 public:
  /// `rows` are equally long. Columns in which all candidates agree are left out.
  explicit FeatureTable(const std::vector<std::vector<double>>& rows);

  std::size_t rows() const { return rows_; }
  std::size_t columns() const { return levels_.size(); }
  /// Returns the number of ordinals of the column, at least 2.
  std::size_t levels(std::size_t column) const { return levels_[column]; }
  const std::uint8_t* column(std::size_t c) const { return ordinals_.data() + c * rows_; }

 private:
  std::size_t rows_;
  std::vector<std::size_t> levels_;
  std::vector<std::uint8_t> ordinals_;
};

}  // namespace kernwright::detail
