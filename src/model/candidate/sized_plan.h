#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/candidate/candidate.h"
#include "model/candidate/compact_plan.h"
#include "model/candidate/size_check.h"
#include "model/expression/expression.h"
#include <kernwright/problem.h>
#include <kernwright/result.h>

namespace kernwright {

/// The plans of a candidate at other sizes of some dims. It computes the numbers that follow these
/// dims, without a problem or a candidate of that size, if the plan has the form of the
/// candidate's. Immutable; any thread may use it.
class SizedPlan {
 public:
  /// For `valid` and `free` see `SizedValues`. The candidate's template and operation outlive it.
  SizedPlan(const Candidate& valid, std::span<const std::string> free,
            const DeviceProfile& profile);

  /// Returns the form of the candidate's plan.
  const std::shared_ptr<const PlanForm>& form() const { return form_; }
  /// Returns the problem of these sizes of the free dims.
  Problem problem(std::span<const std::int64_t> sizes) const;
  /// Makes the candidate of these sizes from the beginning. Errors: see `make_candidate`.
  Result<Candidate> candidate(std::span<const std::int64_t> sizes,
                              const DeviceProfile& profile) const;

  /// Returns the plan of that candidate, if it is valid (see `SizeCheck`). Errors: as for
  /// `candidate`, but demands that have no value do not count.
  Result<std::shared_ptr<const CompactPlan>> at(std::span<const std::int64_t> sizes,
                                                const DeviceProfile& profile) const;

 private:
  class Reader;

  /// A number of the plan that an expression tells.
  struct Number {
    std::size_t to;  ///< its place among the numbers
    PlacedExpression expression;
    std::int64_t least;
    std::int64_t most;
    std::int64_t multiple = 1;  ///< of which it is one
  };
  /// An expression on which the form depends.
  struct Fixed {
    PlacedExpression expression;
    std::int64_t value;
  };
  /// A tensor whose extents or pitches follow the sizes. Its extents are numbers side by side, and
  /// then its pitches if there are gaps.
  struct SizedTensor {
    std::size_t extents;
    std::size_t rank;
    DType dtype;
    bool has_gaps;
    std::vector<PlacedExpression> pitches;
  };
  /// A tensor map of such a tensor, or of a copy whose rows are `copied` elements apart.
  struct SizedMap {
    std::size_t to;
    SizedTensor tensor;
    std::size_t workspace;
    std::int64_t copied;
  };

  /// Computes the numbers. Returns false if the plan has another form, or a limit is broken.
  bool compute(std::span<const std::int64_t> sizes, std::vector<std::int64_t>& numbers,
               double& bytes) const;
  static bool place(const SizedTensor& tensor, const SizedRow::Row& row,
                    std::span<std::int64_t> numbers, double& bytes);
  static bool place(const SizedMap& map, std::span<std::int64_t> numbers);

  const KernelTemplate& kernel_template_;
  std::shared_ptr<const BoundProblem> problem_;  ///< the candidate's, as all below
  Configuration configuration_;
  std::vector<std::string> free_;
  std::shared_ptr<const PlanForm> form_;
  bool computes_ = true;  ///< false if some number follows the sizes in no way that is known here
  SizedRow row_;
  std::vector<Fixed> fixed_;
  std::vector<Number> numbers_;
  std::vector<std::size_t> emptied_;  ///< workspaces that are empty, or not, as in the form
  std::vector<SizedTensor> tensors_;
  std::vector<SizedMap> maps_;
  struct Resident {
    std::size_t grid;  ///< the place of a cooperative launch's grid
    std::int64_t most;
  };
  std::vector<Resident> resident_;
  double fixed_bytes_ = 0;  ///< of all other tensors
};

}  // namespace kernwright
