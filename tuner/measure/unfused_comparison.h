#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "compile/compile_pool.h"
#include "device/device.h"
#include "model/catalog/unfused_form.h"
#include "tuner/data/data_ops.h"
#include <kernwright/l2_state.h>
#include <kernwright/result.h>

namespace kernwright {

/// A candidate that is known to be right, with its bits.
struct ProvenKernel {
  Candidate candidate;
  std::shared_ptr<const CompiledKernel> kernel;
};

/// A fused kernel and the kernels of its problem's unfused form, in its order.
struct UnfusedMatch {
  ProvenKernel fused;
  UnfusedForm form;
  std::vector<ProvenKernel> kernels;
};

/// The results of one of the two sides.
struct ComparedSide {
  Measurement times;  ///< one sample per round
  CheckReport check;  ///< of set 0, before it was timed
};

struct UnfusedComparison {
  ComparedSide fused;
  ComparedSide unfused;
};

/// Runs both sides on the same random inputs, compares each with the fused operation's reference,
/// and times them in turn. The unfused kernels run one after the other in one graph.
///
/// The fused result must be within the operation's bound. The result of the unfused form may be off
/// by more: for every tensor in between by `kRoundingsInBetween` units of rounding of its dtype,
/// relative to the magnitude. Errors: `internal` if a result is wrong, with its first wrong
/// element; `device`.
Result<UnfusedComparison> compare_unfused(Device& device, DataOps& data_ops, const Catalog& catalog,
                                          CompilePool& pool, const UnfusedMatch& match, L2State l2,
                                          std::uint64_t seed);

}  // namespace kernwright
