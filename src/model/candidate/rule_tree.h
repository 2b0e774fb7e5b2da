#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/candidate/kernel_template.h"
#include "model/expression/expression.h"

namespace kernwright {

/// Finds the points of a template's space that obey its rules without visiting each point.
/// Parameters are bound one after the other, and a rule is evaluated as soon as all its names have
/// values. If it rejects them, all points with these values are skipped. Millions of points take
/// tens of milliseconds if rules read the first parameters. Any thread may use it. The template
/// must outlive it.
class RuleTree {
 public:
  /// `scope` has the names of the problem and the device.
  RuleTree(const KernelTemplate& kernel_template, const Scope& scope);

  /// Appends the numbers in [begin, end), in ascending order, of all points that no rule rejects,
  /// that break at most `broken_habits` habits, and for which all derived values that rules read
  /// can be computed.
  void collect(std::int64_t begin, std::int64_t end, std::size_t broken_habits,
               std::vector<std::int64_t>& points) const;

 private:
  enum class Kind { derived, rule, habit };
  /// A derived value to be computed, or a rule or a habit to be evaluated.
  struct Step {
    PlacedExpression expression;
    std::size_t place = 0;  ///< of the derived value
    Kind kind = Kind::derived;
  };
  struct Walk;

  bool take_steps(std::size_t bound, std::vector<std::int64_t>& values,
                  std::size_t& broken_habits) const;
  void descend(std::size_t bound, std::int64_t first, std::size_t broken_habits, Walk& walk) const;

  const std::vector<Parameter>& parameters_;
  std::vector<std::int64_t> below_;       ///< number of points with one value of a parameter
  std::vector<std::int64_t> values_;      ///< of the scope, then of parameters and derived values
  std::size_t first_parameter_ = 0;       ///< place of the first parameter's value
  std::vector<std::vector<Step>> steps_;  ///< by the number of parameters bound
};

}  // namespace kernwright
