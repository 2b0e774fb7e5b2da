#pragma once

#include <string>
#include <vector>

#include "model/expression/expression.h"
#include "model/expression/json_reader.h"

namespace kernwright {

/// A condition with the reason for it.
struct Rule {
  Expression expression;
  std::string why;
  JsonPlace place;

  /// `rule "m < 8" failed: 9 >= 8 (why)` where it does not hold in `scope`; empty where it does.
  std::string failure(const Scope& scope) const;
};

namespace detail {

/// `[{"rule": EXPRESSION, "why": SENTENCE}]`, which may be absent. `names` may occur.
std::vector<Rule> read_rules(const JsonReader& json, const std::vector<std::string>& names);

}  // namespace detail
}  // namespace kernwright
