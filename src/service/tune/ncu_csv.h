#pragma once

#include <cstddef>
#include <optional>
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
  /// Absent where the file does not say.
  std::optional<Extent3> block = {};
  int passes = 0;  ///< 0: the file does not say
};

/// Reads what `ncu --csv --page raw` prints: lines of the program and of ncu itself, a line of
/// names, one of units, and one line for each kernel. Of the columns those of `counters()` are
/// read, in whatever unit and with the signs of any locale; the rate of hits is of hits and misses
/// where they are there. A kernel's name is its base name, without arguments. Separators may be
/// those of a spreadsheet that wrote the file anew. Errors: `invalid_argument` with the line where
/// it is no such file, or has none of the counters.
Result<std::vector<NcuKernel>> parse_ncu_csv(std::string_view text);

/// Gives the kernels of a file to the candidates whose launches they are, by name, grid and, where
/// the file has it, block. Of launches that are alike in these the n-th that was expected has the
/// n-th kernel of the file. All candidates are to be expected before the first is taken: only then
/// is it known which are alike.
class NcuKernels {
 public:
  explicit NcuKernels(std::vector<NcuKernel> kernels);

  /// Returns the number of the candidate, for `take`.
  std::size_t expect(const Candidate& candidate);

  /// The counters of an expected candidate. ncu empties the caches before each pass unless it is
  /// told not to, so they count as cold. Errors: `not_found` with what was looked for;
  /// `invalid_argument` with both numbers where several candidates have launches that are alike,
  /// and the file has not exactly as many.
  Result<CounterSet> take(std::size_t candidate);

  std::size_t size() const { return kernels_.size(); }
  /// How many kernels no candidate has taken.
  std::size_t unused() const;

 private:
  struct Launch {
    std::size_t candidate = 0;
    std::string kernel;
    Extent3 grid{};
    Extent3 block{};
  };
  bool alike(const Launch& one, const Launch& other) const;
  /// The place of the launch's kernel in the file.
  Result<std::size_t> find(std::size_t launch) const;

  std::vector<NcuKernel> kernels_;
  std::vector<bool> used_;
  bool has_blocks_ = false;
  std::vector<Choice> choices_;   ///< by candidate
  std::vector<Launch> launches_;  ///< of all candidates, in their order
};

}  // namespace kernwright
