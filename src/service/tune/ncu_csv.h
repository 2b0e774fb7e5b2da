#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/records/record.h"
#include "model/candidate/candidate.h"
#include "model/result/counters.h"
#include <kernwright/result.h>

namespace kernwright {

/// One launch of a kernel as Nsight Compute counted it.
struct NcuKernel {
  CountedKernel counted;
  int passes = 0;     ///< 0: the file does not say
  bool used = false;  ///< it was given to a candidate
};

/// Reads what `ncu --csv --page raw` prints: lines of the program and of ncu itself, a line of
/// names, one of units, and one line for each kernel. Of the columns those of `counters()` are
/// read, in whatever unit and with the signs of any locale; the rate of hits is of hits and misses
/// where they are there. A kernel's name is its base name, without arguments. Separators may be
/// those of a spreadsheet that wrote the file anew. Errors: `invalid_argument` with the line where
/// it is no such file, or has none of the counters.
Result<std::vector<NcuKernel>> parse_ncu_csv(std::string_view text);

/// Takes the first unused kernels with the names and grids of the candidate's launches, in their
/// order. ncu empties the caches before each pass unless it is told not to, so they count as cold.
/// Errors: `not_found` with what was looked for.
Result<CounterSet> take_from_ncu(std::vector<NcuKernel>& kernels, const Candidate& candidate);

}  // namespace kernwright
