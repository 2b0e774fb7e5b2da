#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace kernwright {

/// The indices of few rows that cover all pairs: for every pair of values in two columns of any row
/// of the table, one of the chosen rows has the same pair. The choice is greedy: the next row is
/// the first one with the most pairs that are not covered yet. At the end rows whose pairs are
/// covered by others are removed. All rows have the same length. Only pairs of columns a and
/// b < a for which `asked(a, b)` is true count.
std::vector<std::size_t> covering_set(
    const std::vector<std::vector<std::int64_t>>& rows,
    const std::function<bool(std::size_t, std::size_t)>& asked = [](auto, auto) { return true; });

}  // namespace kernwright
