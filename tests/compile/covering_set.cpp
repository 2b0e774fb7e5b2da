#include "tests/compile/covering_set.h"

#include <algorithm>
#include <optional>
#include <queue>
#include <utility>

namespace kernwright {
namespace {

/// Numbers the pairs of values densely; the pairs of two columns have a range of numbers.
class Pairs {
 public:
  Pairs(const std::vector<std::vector<std::int64_t>>& rows,
        const std::function<bool(std::size_t, std::size_t)>& asked)
      : rows_(rows) {
    const std::size_t columns = rows.empty() ? 0 : rows.front().size();
    values_.resize(columns);
    for (std::size_t column = 0; column < columns; ++column) {
      std::vector<std::int64_t>& values = values_[column];
      for (const std::vector<std::int64_t>& row : rows) values.push_back(row[column]);
      std::sort(values.begin(), values.end());
      values.erase(std::unique(values.begin(), values.end()), values.end());
    }
    std::size_t count = 0;
    for (std::size_t a = 0; a < columns; ++a) {
      for (std::size_t b = 0; b < a; ++b) {
        starts_.push_back(asked(a, b) ? std::optional(count) : std::nullopt);
        if (starts_.back()) count += values_[a].size() * values_[b].size();
      }
    }
    times_.resize(count);
  }

  /// The number of pairs of a row that no row of the set has.
  std::size_t gain(std::size_t row) const {
    std::size_t gain = 0;
    visit(row, [&](std::size_t pair) { gain += times_[pair] == 0 ? 1 : 0; });
    return gain;
  }
  void add(std::size_t row) {
    visit(row, [&](std::size_t pair) { ++times_[pair]; });
  }
  /// Removes a row from the set if other rows there have all its pairs.
  bool remove_spare(std::size_t row) {
    bool spare = true;
    visit(row, [&](std::size_t pair) { spare = spare && times_[pair] > 1; });
    if (spare) visit(row, [&](std::size_t pair) { --times_[pair]; });
    return spare;
  }

 private:
  template <typename Visitor>
  void visit(std::size_t row, Visitor&& visitor) const {
    std::vector<std::size_t> places;
    std::size_t start = 0;
    for (std::size_t a = 0; a < values_.size(); ++a) {
      const std::vector<std::int64_t>& values = values_[a];
      places.push_back(static_cast<std::size_t>(
          std::lower_bound(values.begin(), values.end(), rows_[row][a]) - values.begin()));
      for (std::size_t b = 0; b < a; ++b) {
        const std::optional<std::size_t> begin = starts_[start++];
        if (begin) visitor(*begin + places[a] * values_[b].size() + places[b]);
      }
    }
  }

  const std::vector<std::vector<std::int64_t>>& rows_;
  std::vector<std::vector<std::int64_t>> values_;   ///< of each column, ascending
  std::vector<std::optional<std::size_t>> starts_;  ///< of the ranges, in the order of `visit`
  std::vector<std::size_t> times_;                  ///< of every pair: the rows of the set with it
};

}  // namespace

std::vector<std::size_t> covering_set(const std::vector<std::vector<std::int64_t>>& rows,
                                      const std::function<bool(std::size_t, std::size_t)>& asked) {
  Pairs pairs(rows, asked);
  // The gain of a row can only fall. So if the gain at the head of the queue is up to date, that
  // row is the best.
  using Entry = std::pair<std::size_t, std::size_t>;  // gain; places left from the end
  std::priority_queue<Entry> queue;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    queue.emplace(pairs.gain(row), rows.size() - row);
  }
  std::vector<std::size_t> chosen;
  while (!queue.empty()) {
    const auto [known, from_end] = queue.top();
    queue.pop();
    const std::size_t row = rows.size() - from_end;
    const std::size_t gain = pairs.gain(row);
    if (gain == 0) continue;
    if (gain < known) {
      queue.emplace(gain, from_end);
      continue;
    }
    pairs.add(row);
    chosen.push_back(row);
  }
  // Later rows may have all pairs for which an earlier one was chosen.
  std::erase_if(chosen, [&](std::size_t row) { return pairs.remove_spare(row); });
  return chosen;
}

}  // namespace kernwright
