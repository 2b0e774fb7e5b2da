#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include <kernwright/problem.h>
#include <kernwright/result.h>

namespace kernwright {

/// So many problems a worklist may stand for.
inline constexpr std::size_t kMostProblems = 100'000;

/// A problem as a worklist has it, and the line of the file where it stands.
struct WorklistEntry {
  Problem problem;
  int line = 0;
};

/// The problems of a worklist file: `{"problems": [...]}`, each in text form
/// ("matmul m=1 n=2 k=3 dtype=bf16") or as `{"operation": "matmul", "dims": {"m": 1, ...},
/// "flags": {"dtype": "bf16"}}`. A dim may also be a range ("4:64:x2", see `parse_sizes`) or a list
/// of integers and ranges, a flag a list of values: the object then stands for all combinations,
/// the last dim or flag changing fastest. Each problem once, where it comes first. Errors:
/// `invalid_argument` with `file:line`, also where the list stands for more than `kMostProblems`,
/// with those that it repeats.
Result<std::vector<WorklistEntry>> parse_worklist(std::string_view text, std::string_view file);

/// Part `index` of `count`, 1 to `count`: of the problems sorted by their text every `count`th. All
/// parts together have each problem once, whatever the list's order.
struct Shard {
  std::size_t index = 1;
  std::size_t count = 1;
};

/// Reads "2/8". Errors: `invalid_argument`.
Result<Shard> parse_shard(std::string_view text);

std::vector<Problem> shard_of(std::vector<Problem> normalized, const Shard& shard);

}  // namespace kernwright
