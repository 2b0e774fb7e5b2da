#include "model/expression/equation.h"

#include "model/expression/evaluator.h"
#include "model/expression/expression_program.h"

namespace kernwright {

using detail::Node;
using detail::Op;

namespace {

/// Values of the names that have one, without descriptions of errors.
struct PartialValues {
  static constexpr bool kTellsErrors = false;
  const PartialScope& scope;

  std::optional<std::int64_t> find(const std::string& name, int) const {
    const auto known = scope.values.find(name);
    if (known != scope.values.end()) return known->second;
    const auto derived = scope.derived.find(name);
    if (derived == scope.derived.end()) return std::nullopt;
    return PartialExpression(derived->second, scope).value();
  }
};

}  // namespace

std::optional<std::int64_t> PartialExpression::value() const { return value_of(program_->root); }

Solution PartialExpression::solve(std::int64_t value) const { return solve(program_->root, value); }

std::string_view PartialExpression::text() const {
  const Node& node = program_->nodes[static_cast<std::size_t>(reduced(program_->root))];
  return std::string_view(program_->text).substr(node.begin, node.end - node.begin);
}

std::optional<Expression> PartialExpression::left_factor() const {
  const Node& node = program_->nodes[static_cast<std::size_t>(reduced(program_->root))];
  if (node.op != Op::multiply) return std::nullopt;
  const Node& left = program_->nodes[static_cast<std::size_t>(node.a)];
  return Expression::parse(program_->text.substr(left.begin, left.end - left.begin)).value();
}

/// Returns the node that is left when known conditions have chosen their branch.
int PartialExpression::reduced(int index) const {
  const Node& node = program_->nodes[static_cast<std::size_t>(index)];
  if (node.op != Op::conditional) return index;
  const std::optional<std::int64_t> condition = value_of(node.a);
  return condition ? reduced(*condition != 0 ? node.b : node.c) : index;
}

std::optional<std::int64_t> PartialExpression::value_of(int index) const {
  std::int64_t value = 0;
  if (!detail::Evaluator(*program_, PartialValues{scope_}).evaluate(index, value)) {
    return std::nullopt;
  }
  return value;
}

Solution PartialExpression::solve(int index, std::int64_t value) const {
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
  const std::int64_t known = a ? *a : *b;
  const int unknown = a ? node.b : node.a;
  std::int64_t left = 0;
  bool overflow = false;
  if (node.op == Op::add) {
    overflow = __builtin_sub_overflow(value, known, &left);
  } else if (node.op == Op::subtract) {
    overflow = a ? __builtin_sub_overflow(known, value, &left)
                 : __builtin_add_overflow(value, known, &left);
  } else {
    if (known <= 0) return {};  // it says nothing of the other factor
    if (value % known != 0) return {.divisor = known};
    left = value / known;
  }
  return overflow ? Solution() : solve(unknown, left);
}

}  // namespace kernwright
