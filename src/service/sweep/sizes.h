#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <kernwright/result.h>

namespace kernwright {

/// Sizes of 1 or more from a comma-separated list of integers and ranges, in its order:
/// "1, 2, 4:64:x2" is 1 2 4 8 16 32 64, "16:64:16" is 16 32 48 64, "8:10" is 8 9 10. A range ends
/// with the last size that is no larger than its end. Errors: `invalid_argument` naming the part
/// that is none, or a list of more than 10,000.
Result<std::vector<std::int64_t>> parse_sizes(std::string_view text);

}  // namespace kernwright
