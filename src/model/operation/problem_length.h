#pragma once

#include <cstddef>

#include <kernwright/result.h>

namespace kernwright {

/// The longest text of a problem, in bytes: far longer than any real problem.
inline constexpr std::size_t kLongestProblem = std::size_t{64} << 10;

/// Checks the length of a problem's text. Errors: `invalid_argument` with both lengths.
Result<void> check_problem_length(std::size_t bytes);

}  // namespace kernwright
