#pragma once

#include <cstddef>
#include <vector>

#include "model/candidate.h"
#include "model/expression.h"

namespace kernwright {

/// `make_candidate` for many configurations of one template and problem: what does not depend on
/// the configuration is worked out once. The references outlive it; any thread may use it.
class CandidateMaker {
 public:
  CandidateMaker(const KernelTemplate& kernel_template, const Operation& operation,
                 const Problem& normalized, const DeviceProfile& profile);

  /// False where a rule or a derived value rejects the configuration: so does `make`, which says
  /// why, and may find more.
  bool obeys_rules(const Configuration& configuration) const;
  Result<Candidate> make(const Configuration& configuration) const;

 private:
  /// Most configurations break a rule that few derived values are needed for.
  struct EarlyRule {
    Expression expression;
    std::size_t needs = 0;  ///< so many derived values
  };

  Result<void> bind_parameters(const Configuration& configuration, Scope& scope) const;

  const KernelTemplate& kernel_template_;
  const Operation& operation_;
  const Problem& normalized_;
  const DeviceProfile& profile_;
  Scope scope_;  ///< of problem and device
  Result<void> applies_;
  std::vector<EarlyRule> rules_;
};

}  // namespace kernwright
