#include "model/operation/unfused.h"

#include <algorithm>

#include "model/operation/operation.h"
#include "support/names.h"
#include "support/text.h"

namespace kernwright::detail {
namespace {

ProblemPattern read_pattern(const JsonReader& json, const Operation& operation,
                            const std::vector<std::string>& names) {
  const std::string text = json.string();
  ProblemPattern pattern;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t open = std::min(text.find('{', at), text.size());
    if (open > at) pattern.parts.push_back({text.substr(at, open - at), false, std::nullopt});
    if (open == text.size()) break;
    const std::size_t close = text.find('}', open);
    if (close == std::string::npos) {
      json.fail(concat("\"", text, "\": no } behind ", text.substr(open)));
      break;
    }
    const std::string inside = text.substr(open + 1, close - open - 1);
    at = close + 1;
    if (find_named(operation.flags, inside) || find_named(operation.type_variables, inside)) {
      pattern.parts.push_back({inside, true, std::nullopt});
    } else {
      pattern.parts.push_back({{}, false, json.expression_of(inside, names)});
    }
  }
  return pattern;
}

}  // namespace

std::vector<UnfusedStep> read_unfused(const JsonReader& json, const Operation& operation,
                                      const std::vector<std::string>& names) {
  std::vector<UnfusedStep> steps;
  if (!json.present()) return steps;
  for (const JsonReader& entry : json.elements()) {
    entry.expect_keys({"when", "problem", "tensors", "scalars"});
    UnfusedStep step;
    if (const JsonReader when = entry.optional("when"); when.present()) {
      step.when = when.expression(names);
    }
    step.problem = read_pattern(entry.required("problem"), operation, names);
    for (const auto& [name, given] : entry.required("tensors").members()) {
      std::vector<std::string> from;
      if (given.is_array()) {
        for (const JsonReader& element : given.elements()) from.push_back(element.value_name());
        if (from.empty()) given.fail("at least one name is needed");
      } else {
        from.push_back(given.value_name());
      }
      step.tensors.emplace_back(name, std::move(from));
    }
    if (const JsonReader scalars = entry.optional("scalars"); scalars.present()) {
      for (const auto& [name, given] : scalars.members()) {
        step.scalars.emplace_back(name, given.string());
        if (!find_named(operation.scalars, step.scalars.back().second)) {
          given.fail(
              concat("\"", step.scalars.back().second, "\" is no scalar of ", operation.name));
        }
      }
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

}  // namespace kernwright::detail
