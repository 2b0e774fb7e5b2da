#pragma once

#include <cstddef>
#include <vector>

#include "model/catalog/catalog.h"
#include "model/operation/bound_problem.h"
#include <kernwright/result.h>

namespace kernwright {

/// One kernel of a problem's unfused form.
struct UnfusedKernel {
  BoundProblem problem;
  std::vector<std::size_t> tensors;  ///< for each of its tensors, the index among the form's
  std::vector<double> scalars;       ///< the values for checks and timing
};

/// A fused problem as separate kernels. They compute the same results from the same inputs, except
/// that tensors in between are rounded to their dtype.
struct UnfusedForm {
  std::vector<TensorShape> tensors;  ///< of the fused problem, then those between kernels
  std::size_t fused_tensors = 0;     ///< number of tensors of the fused problem
  std::vector<UnfusedKernel> kernels;
};

/// Returns the unfused form of a problem. Errors: `not_found` if the operation declares no form of
/// at least two kernels for it; `invalid_argument` with the step if the kernels do not fit
/// together: dtypes, sizes or order, or a tensor that no kernel writes or reads.
Result<UnfusedForm> unfused_form(const Catalog& catalog, const BoundProblem& problem);

}  // namespace kernwright
