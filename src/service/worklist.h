#pragma once

#include <string_view>
#include <vector>

#include <kernwright/problem.h>
#include <kernwright/result.h>

namespace kernwright {

/// The problems of a worklist file: `{"problems": [...]}`, each in text form
/// ("matmul m=1 n=2 k=3 dtype=bf16") or as `{"operation": "matmul", "dims": {"m": 1, ...},
/// "flags": {"dtype": "bf16"}}`. Errors: `invalid_argument` with `file:line`.
Result<std::vector<Problem>> parse_worklist(std::string_view text, std::string_view file);

}  // namespace kernwright
