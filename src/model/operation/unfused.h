#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/expression/expression.h"
#include "model/expression/json_reader.h"

namespace kernwright {

struct Operation;

/// The text of a problem that depends on another one, `bias_activation rows={m} columns={2 * n}
/// dtype={out}`: in braces a flag or a type variable of that one, whose text is put there, or an
/// expression over its names, whose value is.
struct ProblemPattern {
  struct Part {
    std::string text;                 ///< as it is, or the name of a flag or type variable
    bool is_name = false;             ///< `text` is that name
    std::optional<Expression> value;  ///< put in place of `text`
  };
  std::vector<Part> parts;
};

/// One kernel of what an operation declares as its unfused form.
struct UnfusedStep {
  std::optional<Expression> when;  ///< left out of the form where 0
  ProblemPattern problem;
  /// Tensors of the step by name: those of the fused operation, or names of the form's own, of
  /// which the first stands that there is.
  std::vector<std::pair<std::string, std::vector<std::string>>> tensors;
  /// Scalars of the step that get the value of one of the fused operation's; others get their
  /// defaults.
  std::vector<std::pair<std::string, std::string>> scalars;
};

namespace detail {

/// `[{"when": EXPRESSION, "problem": PATTERN, "tensors": {}, "scalars": {}}]`, which may be absent.
std::vector<UnfusedStep> read_unfused(const JsonReader& json, const Operation& operation,
                                      const std::vector<std::string>& names);

}  // namespace detail
}  // namespace kernwright
