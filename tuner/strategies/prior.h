#pragma once

#include <cstddef>
#include <vector>

#include "tuner/strategies/board.h"
#include "tuner/strategies/search_strategy.h"

namespace kernwright::detail {

/// What the cost model may decide: an order, and to put off the slowest three quarters of each
/// template (it may be wrong about a whole one), and all that it thinks 8 times slower than its
/// fastest. Has nothing to say where all predictions agree,
/// and loses its say where none of its favourites came within 10 % of the best.
class Prior {
 public:
  explicit Prior(const SearchSpace& space);

  /// The candidates predicted fastest, one per shared compile: each template's first, since the
  /// model may be wrong about a whole template, then of all templates in the order of the
  /// predictions.
  std::vector<std::size_t> favourites(std::size_t count) const;
  /// False for what is put off.
  bool keeps(std::size_t candidate) const { return !heard_ || !put_off_[candidate]; }
  /// To be called when the first results are in.
  void check(const Board& board);

 private:
  const SearchSpace& space_;
  double hopeless_us_ = 0;
  bool heard_ = false;
  bool checked_ = false;
  std::vector<bool> put_off_;
  std::vector<std::vector<std::size_t>> ranked_;  ///< per template, fastest predicted first
};

}  // namespace kernwright::detail
