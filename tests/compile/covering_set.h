#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kernwright {

/// Indices of few rows in which all pairs occur: every two values that any row of the table has in
/// two columns, one of the chosen rows has in them too. Greedy: each next row is the one, the first
/// of equals, with the most pairs that none before it has; those whose pairs others have in the end
/// are left out. The rows are equally long.
std::vector<std::size_t> covering_set(const std::vector<std::vector<std::int64_t>>& rows);

}  // namespace kernwright
