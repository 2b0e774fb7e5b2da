#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/candidate/candidate.h"
#include "model/candidate/size_check.h"
#include "model/expression/expression.h"
#include <kernwright/problem.h>
#include <kernwright/result.h>

namespace kernwright {

/// The plans of a candidate at other sizes of some dims: it computes only the values that depend on
/// these dims, without a problem or a candidate of that size. Immutable; any thread may use it.
class SizedPlan {
 public:
  /// For `valid` and `free` see `SizedValues`. The candidate's template and operation outlive it.
  SizedPlan(const Candidate& valid, std::span<const std::string> free);

  /// Returns the problem of these sizes of the free dims.
  Problem problem(std::span<const std::int64_t> sizes) const;
  /// Makes the candidate of these sizes from the beginning. Errors: see `make_candidate`.
  Result<Candidate> candidate(std::span<const std::int64_t> sizes,
                              const DeviceProfile& profile) const;

  /// Returns the plan of that candidate, if it is valid (see `SizeCheck`). This fails where that
  /// fails, whose message says more.
  Result<ExecutionPlan> at(std::span<const std::int64_t> sizes, const DeviceProfile& profile) const;

 private:
  const KernelTemplate& kernel_template_;
  std::shared_ptr<const BoundProblem> problem_;  ///< the candidate's, as all below
  Configuration configuration_;
  Scope scope_;
  std::vector<std::size_t> free_;  ///< the places of the free dims
  std::vector<SizedValues::Step> steps_;
  std::vector<PlacedExpression> demands_;  ///< that depend on the sizes
  PlacedExpressions expressions_;          ///< of shapes and launches
};

}  // namespace kernwright
