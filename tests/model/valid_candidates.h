#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "model/candidate/candidate_maker.h"

namespace kernwright {

/// The first `most` valid candidates of a template for a problem, in the order of its space. Only
/// points that obey the rules are made: spaces of matmul have hundreds of thousands of points, and
/// looking at each took most of the time of the tests. RuleTreeTest shows that none is missed.
inline std::vector<Candidate> valid_candidates(
    const KernelTemplate& kernel_template, const BoundProblem& problem,
    const DeviceProfile& profile, std::size_t most = std::numeric_limits<std::size_t>::max()) {
  std::vector<Candidate> valid;
  const CandidateMaker maker(kernel_template, problem, profile);
  std::vector<std::int64_t> points;
  maker.add_obeying(0, kernel_template.space.size(), points);
  for (const std::int64_t point : points) {
    if (valid.size() >= most) break;
    if (auto candidate = maker.make(point)) valid.push_back(*std::move(candidate));
  }
  return valid;
}

}  // namespace kernwright
