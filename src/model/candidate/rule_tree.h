#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/candidate/kernel_template.h"
#include "model/expression/expression.h"

namespace kernwright {

/// Finds the points of a template's space that obey its rules without looking at each: parameters
/// are bound one after the other, and a rule is asked as soon as all it reads is known, so that
/// what it rejects goes with everything below. Millions of points take tens of milliseconds where
/// rules read the first parameters. Any thread may use it; the template outlives it.
class RuleTree {
 public:
  /// `scope` holds what problem and device give.
  RuleTree(const KernelTemplate& kernel_template, const Scope& scope);

  /// Appends the numbers, in [begin, end), of the points that no rule rejects and whose derived
  /// values that rules read can all be computed, in ascending order.
  void collect(std::int64_t begin, std::int64_t end, std::vector<std::int64_t>& points) const;

 private:
  /// A derived value to be kept, or a rule to be asked.
  struct Step {
    PlacedExpression expression;
    std::size_t place = 0;  ///< of the derived value
    bool is_rule = false;
  };
  struct Walk;

  bool take_steps(std::size_t bound, std::vector<std::int64_t>& values) const;
  void descend(std::size_t bound, std::int64_t first, Walk& walk) const;

  const std::vector<Parameter>& parameters_;
  std::vector<std::int64_t> below_;       ///< points of one value of a parameter
  std::vector<std::int64_t> values_;      ///< of the scope, then room for parameters and derived
  std::size_t first_parameter_ = 0;       ///< place of its value
  std::vector<std::vector<Step>> steps_;  ///< once so many parameters are bound
};

}  // namespace kernwright
