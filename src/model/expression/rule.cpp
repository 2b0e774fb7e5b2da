#include "model/expression/rule.h"

#include "support/text.h"

namespace kernwright {

std::string Rule::failure(const Scope& scope) const {
  const Result<std::int64_t> holds = expression.evaluate(scope);
  if (holds && *holds != 0) return {};
  return concat("rule \"", expression.text(),
                "\" failed: ", holds ? expression.explain_zero(scope) : holds.error().message, " (",
                why, ")");
}

namespace detail {

std::vector<Rule> read_rules(const JsonReader& json, const std::vector<std::string>& names) {
  std::vector<Rule> rules;
  if (!json.present()) return rules;
  for (const JsonReader& entry : json.elements()) {
    entry.expect_keys({"rule", "why"});
    const JsonReader text = entry.required("rule");
    const JsonReader why = entry.required("why");
    Rule rule{text.expression(names), why.string(), text.place()};
    if (why.present() && rule.why.empty()) why.fail("a rule needs a reason");
    rules.push_back(std::move(rule));
  }
  return rules;
}

}  // namespace detail
}  // namespace kernwright
