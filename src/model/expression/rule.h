#pragma once

#include <string>
#include <vector>

#include "model/expression/expression.h"
#include "model/expression/json_reader.h"

namespace kernwright {

/// A condition, and the reason for it.
struct Rule {
  Expression expression;
  std::string why;
  JsonPlace place;

  /// Returns the message `rule "m < 8" failed: 9 >= 8 (why)` if it does not hold in `scope`; empty
  /// if it does.
  std::string failure(const Scope& scope) const;
};

namespace detail {

/// Reads `[{"rule": EXPRESSION, "why": SENTENCE}]`, which may be missing. Rules may use `names`.
std::vector<Rule> read_rules(const JsonReader& json, const std::vector<std::string>& names);

}  // namespace detail
}  // namespace kernwright
