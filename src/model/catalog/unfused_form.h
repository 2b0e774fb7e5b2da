#pragma once

#include <cstddef>
#include <vector>

#include "model/catalog/catalog.h"
#include "model/operation/operation.h"
#include <kernwright/problem.h>
#include <kernwright/result.h>

namespace kernwright {

/// One kernel of a problem's unfused form.
struct UnfusedKernel {
  const Operation* operation = nullptr;
  Problem problem;                   ///< normalised
  std::vector<std::size_t> tensors;  ///< of each of its tensors, the place among the form's
  std::vector<double> scalars;       ///< what checks and timing pass
};

/// A fused problem as separate kernels: the same results from the same inputs, rounded to their
/// dtype in between.
struct UnfusedForm {
  std::vector<TensorShape> tensors;  ///< of the fused problem, then what passes between kernels
  std::size_t fused_tensors = 0;     ///< how many of them are the fused problem's
  std::vector<UnfusedKernel> kernels;
};

/// The unfused form of a normalised problem. Errors: `not_found` where the operation declares none
/// of at least two kernels for it; `invalid_argument` naming the step, where the kernels do not fit
/// together: dtypes, sizes, order, or what nobody writes or reads.
Result<UnfusedForm> unfused_form(const Catalog& catalog, const Operation& operation,
                                 const Problem& normalized);

}  // namespace kernwright
