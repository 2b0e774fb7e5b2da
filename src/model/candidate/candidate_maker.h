#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "model/candidate/candidate.h"
#include "model/candidate/plan_builder.h"
#include "model/candidate/rule_tree.h"

namespace kernwright {

/// The expressions of a template in their places in the rows of its candidates' values, with which
/// candidates are made faster than in a scope.
struct CandidatePlaces {
  /// `scope` has the names of a problem and of the device.
  CandidatePlaces(const KernelTemplate& kernel_template, const Scope& scope);

  Scope row;                      ///< the names, with values that nobody reads
  std::size_t first_derived = 0;  ///< the place of the first derived value
  PlacedExpressions expressions;
};

/// Does the same as `make_candidate`, for many configurations of one template and problem.
/// Everything that does not depend on the configuration is computed once. The template and the
/// profile outlive it. Any thread may use it.
class CandidateMaker {
 public:
  CandidateMaker(const KernelTemplate& kernel_template, const BoundProblem& problem,
                 const DeviceProfile& profile);

  /// Returns false if a rule rejects the configuration, or a derived value that rules read has no
  /// value. `make` then fails too, and says why; it may fail for other reasons. Neither asks
  /// habits.
  bool obeys_rules(const Configuration& configuration) const;
  /// Appends the numbers in [begin, end) of all points that obey the rules and break at most so
  /// many habits, in ascending order.
  void add_obeying(std::int64_t begin, std::int64_t end, std::vector<std::int64_t>& points,
                   std::size_t broken_habits = 0) const {
    for_points().rules.collect(begin, end, broken_habits, points);
  }

  /// Makes a candidate. A configuration may also name bound derived values, if it has their values:
  /// records may name a value that was a parameter when they were made.
  Result<Candidate> make(const Configuration& configuration) const;
  /// Makes the candidate of a point that obeys the rules, which are not evaluated again.
  Result<Candidate> make(std::int64_t point) const;

 private:
  Result<void> check_place(const Configuration& configuration) const;
  /// All that is worth its making only if many points are looked at.
  struct ForPoints {
    RuleTree rules;
    CandidatePlaces places;
  };
  const ForPoints& for_points() const;
  /// The configuration is a point of the space, and the template applies. If `places` is given, the
  /// point obeys the rules.
  Result<Candidate> make_valid(Configuration configuration, const CandidatePlaces* places) const;

  const KernelTemplate& kernel_template_;
  std::shared_ptr<const BoundProblem> problem_;
  const DeviceProfile& profile_;
  Scope scope_;  ///< of problem and device
  Result<void> applies_;
  Result<ExecutionPlan> tensors_;  ///< the part of the plan that the problem alone decides
  mutable std::once_flag placing_;
  mutable std::optional<ForPoints> for_points_;
};

}  // namespace kernwright
