#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/expression/expression.h"
#include "model/expression/json_reader.h"

namespace kernwright {

struct Operation;

/// The text of a problem that depends on another problem, such as `bias_activation rows={m}
/// columns={2 * n} dtype={out}`. Braces hold a flag or a type variable of the other problem, which
/// is replaced by its text, or an expression over its names, which is replaced by its value.
struct ProblemPattern {
  struct Part {
    std::string text;                 ///< literal text, or the name of a flag or type variable
    bool is_name = false;             ///< `text` is that name
    std::optional<Expression> value;  ///< put in place of `text`
  };
  std::vector<Part> parts;
};

/// One kernel of the unfused form that an operation declares.
struct UnfusedStep {
  std::optional<Expression> when;  ///< if it is 0 the step is left out
  ProblemPattern problem;
  /// For each tensor of the step the names of tensors of the fused operation, or of tensors between
  /// steps. The first that exists is used.
  std::vector<std::pair<std::string, std::vector<std::string>>> tensors;
  /// Scalars of the step, with the scalar of the fused operation whose value each gets. Others get
  /// their defaults.
  std::vector<std::pair<std::string, std::string>> scalars;
};

namespace detail {

/// Reads `[{"when": EXPRESSION, "problem": PATTERN, "tensors": {}, "scalars": {}}]`, which may be
/// missing.
std::vector<UnfusedStep> read_unfused(const JsonReader& json, const Operation& operation,
                                      const std::vector<std::string>& names);

}  // namespace detail
}  // namespace kernwright
