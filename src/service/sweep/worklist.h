#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "models/model_worklist.h"
#include <kernwright/problem.h>
#include <kernwright/result.h>

namespace kernwright {

/// A problem as a worklist has it, and the line of the file where it stands.
struct WorklistEntry {
  Problem problem;
  int line = 0;
};

/// The problems of a worklist file, `{"problems": [...]}`, each once, where it comes first.
///
/// A problem is in text form ("matmul m=1 n=2 k=3 dtype=bf16") or an object, `{"operation":
/// "matmul", "dims": {"m": 1, ...}, "flags": {"dtype": "bf16"}}`. A dim may also be a range
/// ("4:64:x2", see `parse_sizes`) or a list of integers and ranges, and a flag a list of values.
/// The object then stands for all combinations; the last dim or flag changes fastest.
///
/// A log of lookups (`LookupLog`) is a worklist too: of its problems, those that were asked for
/// most come first. Lines that cannot be read are left out, since a process that was killed may
/// have left one; `unread` gets their number.
///
/// Errors: `not_found` if the file has no problem, or is neither of the two, with the key that a
/// worklist does not have; `invalid_argument` with `file:line`, also if the list stands for more
/// than `kMostProblems`, repeated ones included.
Result<std::vector<WorklistEntry>> parse_worklist(std::string_view text, std::string_view file,
                                                  std::size_t* unread = nullptr);

/// `parse_worklist` of a file. Errors also: see `read_file`.
Result<std::vector<WorklistEntry>> read_worklist(const std::filesystem::path& file,
                                                 std::size_t* unread = nullptr);

/// How messages tell of lines of a log that were left out.
std::string lines_left_out(std::size_t unread, const std::filesystem::path& file);

/// Part `index` of `count`, from 1 to `count`. It has every `count`th of the problems, sorted by
/// their text. So all parts together have each problem once, whatever the order of the list.
struct Shard {
  std::size_t index = 1;
  std::size_t count = 1;
};

/// Reads "2/8". Errors: `invalid_argument`.
Result<Shard> parse_shard(std::string_view text);

std::vector<Problem> shard_of(std::vector<Problem> normalized, const Shard& shard);

}  // namespace kernwright
