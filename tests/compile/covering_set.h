#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kernwright {

/// The indices of few rows that cover all pairs: for every pair of values in two columns of any row
/// of the table, one of the chosen rows has the same pair. The choice is greedy: the next row is
/// the first one with the most pairs that are not covered yet. At the end rows whose pairs are
/// covered by others are removed. All rows have the same length.
std::vector<std::size_t> covering_set(const std::vector<std::vector<std::int64_t>>& rows);

}  // namespace kernwright
