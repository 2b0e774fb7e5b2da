#include "model/candidate/size_check.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

namespace kernwright {

SizedValues::SizedValues(const Candidate& valid, std::span<const std::string> free)
    : scope_(valid.scope) {
  const BoundProblem& problem = *valid.problem;
  const std::size_t of_problem = problem.scope().size();
  known_.assign(scope_.values().begin(), scope_.values().end());
  for (const std::string& dim : free) {
    free_.push_back(find(dim, of_problem));
    known_[free_.back()] = std::nullopt;
  }
  const auto add = [&](std::string_view name, const Expression& expression, std::size_t count,
                       bool zero_if_none) {
    const std::size_t place = find(name, count);
    PlacedExpression left = fold(expression, place);
    if (left.constant()) return;
    known_[place] = std::nullopt;
    steps_.push_back({place, std::move(left), zero_if_none});
  };
  for (const Dim& dim : problem.operation().dims) {
    const bool given = std::ranges::any_of(problem.problem().dims(),
                                           [&](const auto& one) { return one.first == dim.name; });
    if (dim.default_size && !given) add(dim.name, *dim.default_size, of_problem, true);
  }
  for (const NamedValue& value : problem.operation().derived) {
    add(value.name, value.expression, of_problem, true);
  }
  for (const Derived& value : valid.kernel_template->derived) {
    add(value.name, value.expression, known_.size(), false);
  }
}

std::size_t SizedValues::find(std::string_view name, std::size_t count) const {
  while (count > 0 && scope_.name(count - 1) != name) --count;
  return count == 0 ? PlacedExpression::kUnknown : count - 1;
}

PlacedExpression SizedValues::fold(const Expression& expression, std::size_t count) const {
  std::vector<std::size_t> places;
  for (const std::string& name : expression.names()) places.push_back(find(name, count));
  return fold(PlacedExpression(expression, places));
}

void SizedRow::read(const PlacedExpression& expression, std::vector<bool>& is_read) {
  for (const std::size_t place : expression.places()) {
    if (place != PlacedExpression::kUnknown) is_read[place] = true;
  }
}

SizedRow::SizedRow(const SizedValues& values, std::vector<bool> is_read)
    : free_count_(values.free().size()), to_(values.size(), PlacedExpression::kUnknown) {
  for (auto step = values.steps().rbegin(); step != values.steps().rend(); ++step) {
    if (is_read[step->place]) read(step->expression, is_read);
  }
  for (std::size_t i = 0; i < free_count_; ++i) to_[values.free()[i]] = i;
  for (const SizedValues::Step& step : values.steps()) {
    if (!is_read[step.place]) continue;
    to_[step.place] = free_count_ + steps_.size();
    steps_.push_back({to_[step.place], placed(step.expression), step.zero_if_none});
  }
}

bool SizedRow::fill(std::span<const std::int64_t> sizes, Row& row) const {
  if (sizes.size() != free_count_) return false;
  std::ranges::copy(sizes, row.begin());
  std::int64_t* next = row.data() + free_count_;
  for (const SizedValues::Step& step : steps_) {
    const std::optional<std::int64_t> value = step.expression.evaluate(row);
    if (!value && !step.zero_if_none) return false;
    *next++ = value.value_or(0);
  }
  return true;
}

SizeCheck::SizeCheck(const Candidate& valid, std::span<const std::string> free) {
  const KernelTemplate& kernel_template = *valid.kernel_template;
  const Operation& operation = valid.problem->operation();
  const Scope& scope = valid.scope;  // its values are in the order in which they are computed
  const std::size_t of_problem = valid.problem->scope().size();
  const SizedValues values(valid, free);
  const auto add_condition = [&](const Expression& expression, std::size_t count) {
    PlacedExpression left = values.fold(expression, count);
    if (!left.constant()) conditions_.push_back(std::move(left));  // a constant one holds
  };
  for (const Rule& rule : operation.requirements) add_condition(rule.expression, of_problem);
  for (const Expression& condition : kernel_template.when) add_condition(condition, of_problem);
  for (const Rule& rule : kernel_template.rules) add_condition(rule.expression, scope.size());
  for (const Rule& habit : kernel_template.habits) add_condition(habit.expression, scope.size());

  // What bits hold must stay as it is.
  std::vector<std::size_t> fixed;
  for (const std::string& dim : kernel_template.constant_dims) {
    const std::size_t place = values.find(dim, of_problem);
    if (place != PlacedExpression::kUnknown && values.depends(place)) fixed.push_back(place);
  }
  for (const Derived& value : kernel_template.derived) {
    const std::size_t place = values.find(value.name, scope.size());
    if (!value.bound || !values.depends(place)) continue;
    compiled_.emplace_back(value.name, scope.values()[place]);
    fixed.push_back(place);
  }

  std::vector<bool> is_read(scope.size());
  for (const PlacedExpression& condition : conditions_) SizedRow::read(condition, is_read);
  for (const std::size_t place : fixed) is_read[place] = true;
  row_ = SizedRow(values, std::move(is_read));
  for (PlacedExpression& condition : conditions_) condition = row_.placed(condition);
  for (const std::size_t place : fixed) {
    fixed_.emplace_back(row_.place(place), scope.values()[place]);
  }
}

Choice choice_of_bits(const Candidate& candidate, std::span<const std::string> free) {
  Choice choice = candidate.choice();
  auto values = choice.configuration.values();
  const SizeCheck check(candidate, free);
  values.insert(values.end(), check.compiled().begin(), check.compiled().end());
  choice.configuration = Configuration(std::move(values));
  return choice;
}

bool SizeCheck::holds(std::span<const std::int64_t> sizes) const {
  SizedRow::Row row;
  if (!row_.fits() || !row_.fill(sizes, row)) return false;
  for (const auto& [place, value] : fixed_) {
    if (row[place] != value) return false;
  }
  return std::ranges::all_of(conditions_, [&](const PlacedExpression& condition) {
    const auto value = condition.evaluate(row);
    return value && *value != 0;
  });
}

}  // namespace kernwright
