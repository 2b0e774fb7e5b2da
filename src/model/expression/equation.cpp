#include "model/expression/equation.h"

#include "model/expression/evaluator.h"
#include "model/expression/expression_program.h"

namespace kernwright {

using detail::Node;
using detail::Op;

namespace {

/// Values of the names that have one.
struct PartialValues {
  const PartialScope& scope;

  std::optional<std::int64_t> find(const std::string& name) const {
    const auto known = scope.values.find(name);
    if (known != scope.values.end()) return known->second.value();
    const auto derived = scope.derived.find(name);
    if (derived == scope.derived.end()) return std::nullopt;
    return PartialExpression(derived->second, scope).plain_value();
  }
};

}  // namespace

std::optional<Number> PartialExpression::value() const { return value_of(program_->root); }

std::optional<std::int64_t> PartialExpression::plain_value() const {
  return plain_value_of(program_->root);
}

Solution PartialExpression::solve(const Number& value) const {
  return solve(program_->root, value);
}

std::string_view PartialExpression::text() const {
  const Node& node = program_->nodes[static_cast<std::size_t>(reduced(program_->root))];
  return std::string_view(program_->text).substr(node.begin, node.end - node.begin);
}

std::optional<Expression> PartialExpression::left_factor() const {
  const Node& node = program_->nodes[static_cast<std::size_t>(reduced(program_->root))];
  if (node.op != Op::multiply) return std::nullopt;
  return part(node.a);
}

Expression PartialExpression::part(int index) const {
  Expression part;
  part.program_ = program_;
  if (index == program_->root) return part;
  const Node& node = program_->nodes[static_cast<std::size_t>(index)];
  return Expression::parse(program_->text.substr(node.begin, node.end - node.begin)).value();
}

/// Returns the node that is left when known conditions have chosen their branch.
int PartialExpression::reduced(int index) const {
  const Node& node = program_->nodes[static_cast<std::size_t>(index)];
  if (node.op != Op::conditional) return index;
  const std::optional<Number> condition = value_of(node.a);
  return condition ? reduced(*condition == 0 ? node.c : node.b) : index;
}

std::optional<std::int64_t> PartialExpression::plain_value_of(int index) const {
  std::int64_t value = 0;
  if (!detail::Evaluator(*program_, PartialValues{scope_}).evaluate(index, value)) {
    return std::nullopt;
  }
  return value;
}

std::optional<Number> PartialExpression::value_of(int index) const {
  const std::optional<std::int64_t> value = plain_value_of(index);
  if (scope_.recording == nullptr) return value ? std::optional<Number>(*value) : std::nullopt;
  const Expression recorded = part(index);
  std::vector<std::optional<Number>> names;
  for (const std::string& name : recorded.names()) {
    const auto known = scope_.values.find(name);
    const auto derived = scope_.derived.find(name);
    if (known != scope_.values.end()) {
      names.emplace_back(known->second);
    } else if (derived != scope_.derived.end()) {
      names.push_back(PartialExpression(derived->second, scope_).value());
    } else {
      names.emplace_back();
    }
  }
  return scope_.recording->evaluate(recorded, names, value);
}

Solution PartialExpression::solve(int index, const Number& value) const {
  index = reduced(index);
  const Node& node = program_->nodes[static_cast<std::size_t>(index)];
  if (node.op == Op::name) {
    const std::string& name = program_->names[static_cast<std::size_t>(node.a)];
    if (scope_.values.contains(name)) return {};
    const auto derived = scope_.derived.find(name);
    if (derived == scope_.derived.end()) return {name, value};
    return PartialExpression(derived->second, scope_).solve(value);
  }
  if (node.op != Op::add && node.op != Op::subtract && node.op != Op::multiply) return {};
  const auto a = value_of(node.a);
  const auto b = value_of(node.b);
  if (a.has_value() == b.has_value()) return {};
  const Number known = a ? *a : *b;
  std::optional<Number> left;
  if (node.op == Op::add) {
    left = subtract(value, known);
  } else if (node.op == Op::subtract) {
    left = a ? subtract(known, value) : add(value, known);
  } else {
    if (known <= 0) return {};  // it says nothing of the other factor
    if (!(remainder(value, known) == 0)) return {.divisor = known.value()};
    left = divide(value, known);
  }
  return left ? solve(a ? node.b : node.a, *left) : Solution();
}

}  // namespace kernwright
