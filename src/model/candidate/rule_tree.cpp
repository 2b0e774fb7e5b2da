#include "model/candidate/rule_tree.h"

#include <algorithm>
#include <utility>

namespace kernwright {
namespace {

/// Names with their places in the row of values, and their levels: the number of parameters that
/// must be bound until the value is known.
struct Names {
  Scope row;
  std::vector<std::size_t> levels;

  void add(std::string_view name, std::size_t level) {
    row.set(name, 0);
    levels.push_back(level);
  }
  std::size_t level_of(const Expression& expression) const {
    std::size_t level = 0;
    for (const std::string& name : expression.names()) {
      const std::size_t place = row.place(name);
      if (place != PlacedExpression::kUnknown) level = std::max(level, levels[place]);
    }
    return level;
  }
};

/// Finds the derived values that the rules read, directly or through other derived values.
std::vector<bool> derived_for_rules(const KernelTemplate& kernel_template,
                                    const std::vector<Rule>& rules) {
  const std::vector<Derived>& derived = kernel_template.derived;
  std::vector<bool> needed(derived.size(), false);
  const auto mark = [&](const Expression& expression, std::size_t before) {
    for (std::size_t i = 0; i < before; ++i) {
      const auto& names = expression.names();
      if (std::find(names.begin(), names.end(), derived[i].name) != names.end()) needed[i] = true;
    }
  };
  for (const Rule& rule : rules) mark(rule.expression, derived.size());
  for (std::size_t i = derived.size(); i-- > 0;) {
    if (needed[i]) mark(derived[i].expression, i);
  }
  return needed;
}

}  // namespace

RuleTree::RuleTree(const KernelTemplate& kernel_template, const Scope& scope)
    : parameters_(kernel_template.space.parameters()),
      below_(parameters_.size(), 1),
      steps_(parameters_.size() + 1) {
  Names names{scope, std::vector<std::size_t>(scope.size(), 0)};
  values_.assign(scope.values().begin(), scope.values().end());
  first_parameter_ = values_.size();
  for (std::size_t i = 0; i < parameters_.size(); ++i) names.add(parameters_[i].name, i + 1);
  for (std::size_t i = parameters_.size(); i-- > 1;) {
    below_[i - 1] = below_[i] * static_cast<std::int64_t>(parameters_[i].values.size());
  }

  std::vector<Rule> rules = kernel_template.rules;
  rules.insert(rules.end(), kernel_template.habits.begin(), kernel_template.habits.end());
  std::vector<bool> asked(rules.size(), false);
  const auto ask = [&](std::size_t known) {
    for (std::size_t i = 0; i < asked.size(); ++i) {
      const Expression& rule = rules[i].expression;
      const bool waits =
          std::any_of(kernel_template.derived.begin() + static_cast<std::ptrdiff_t>(known),
                      kernel_template.derived.end(), [&](const Derived& derived) {
                        return std::find(rule.names().begin(), rule.names().end(), derived.name) !=
                               rule.names().end();
                      });
      if (asked[i] || waits) continue;
      asked[i] = true;
      const Kind kind = i < kernel_template.rules.size() ? Kind::rule : Kind::habit;
      steps_[names.level_of(rule)].push_back({PlacedExpression(rule, names.row), 0, kind});
    }
  };
  const std::vector<bool> needed = derived_for_rules(kernel_template, rules);
  ask(0);
  for (std::size_t i = 0; i < kernel_template.derived.size(); ++i) {
    const Derived& derived = kernel_template.derived[i];
    const std::size_t level = names.level_of(derived.expression);
    if (needed[i]) {
      steps_[level].push_back(
          {PlacedExpression(derived.expression, names.row), names.levels.size(), Kind::derived});
    }
    names.add(derived.name, level);
    ask(i + 1);
  }
  values_.resize(names.levels.size(), 0);
}

/// Takes the steps that became possible with parameter number `bound`. Returns false if a rule
/// rejects the bound values, or more habits than may be broken, or a derived value cannot be
/// computed.
bool RuleTree::take_steps(std::size_t bound, std::vector<std::int64_t>& values,
                          std::size_t& broken_habits) const {
  return std::all_of(steps_[bound].begin(), steps_[bound].end(), [&](const Step& step) {
    const std::optional<std::int64_t> value = step.expression.evaluate(values);
    if (step.kind != Kind::derived) {
      return value.value_or(0) != 0 || (step.kind == Kind::habit && broken_habits-- > 0);
    }
    values[step.place] = value.value_or(0);
    return value.has_value();
  });
}

struct RuleTree::Walk {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::vector<std::int64_t> values;
  std::vector<std::int64_t>* points = nullptr;
};

/// Binds the next parameter to each of its values. `first` is the number of the first point with
/// the values bound so far.
void RuleTree::descend(std::size_t bound, std::int64_t first, std::size_t broken_habits,
                       Walk& walk) const {
  if (bound == parameters_.size()) {
    walk.points->push_back(first);
    return;
  }
  const std::vector<std::int64_t>& list = parameters_[bound].values;
  const std::int64_t below = below_[bound];
  const std::int64_t last =
      std::min(static_cast<std::int64_t>(list.size()), (walk.end - first + below - 1) / below);
  for (std::int64_t i = std::max<std::int64_t>(0, (walk.begin - first) / below); i < last; ++i) {
    walk.values[first_parameter_ + bound] = list[static_cast<std::size_t>(i)];
    std::size_t left = broken_habits;
    if (take_steps(bound + 1, walk.values, left)) descend(bound + 1, first + i * below, left, walk);
  }
}

void RuleTree::collect(std::int64_t begin, std::int64_t end, std::size_t broken_habits,
                       std::vector<std::int64_t>& points) const {
  if (begin >= end) return;
  Walk walk{begin, end, values_, &points};
  if (take_steps(0, walk.values, broken_habits)) descend(0, 0, broken_habits, walk);
}

}  // namespace kernwright
