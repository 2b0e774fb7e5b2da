#pragma once

#include <cstdint>

#include "compile/compile_request.h"
#include "model/candidate/candidate.h"
#include "model/candidate/device_profile.h"
#include "model/catalog/catalog.h"
#include <kernwright/result.h>

namespace kernwright {

/// Shape that both kernels of a pair share: one row per block.
struct PairShape {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t threads = 0;   ///< THREADS_PER_ROW
  std::int64_t resident = 0;  ///< RESIDENT
  std::int64_t stages = 0;    ///< STAGES: 0 only if all blocks are resident at once
};

/// Two kernels over the rows of a matrix, and both as one.
struct RowPair {
  Candidate first;   ///< rmsnorm/row
  Candidate second;  ///< softmax/row, of what the first wrote
  /// A cooperative kernel made of their sources: the first, a barrier of the whole grid, the
  /// second.
  CompileRequest request;
  /// Its tensors are the first kernel's, then the second's; scalars likewise. The workspace counts
  /// the arrivals of all launches at the barrier, from 0.
  ExecutionPlan plan;
};

/// Returns the pair in bf16. Errors: `invalid_argument` if a template's rules reject the shape.
Result<RowPair> make_row_pair(const Catalog& catalog, const DeviceProfile& profile,
                              const PairShape& shape);

/// Checks that all blocks of the pair are resident at once, as a cooperative launch requires.
/// Errors: `invalid_argument` with both numbers.
Result<void> check_resident(const RowPair& pair, const PairShape& shape,
                            const DeviceProfile& profile);

}  // namespace kernwright
