#include "model/expression/expression.h"

#include <algorithm>
#include <atomic>

#include "model/expression/evaluator.h"
#include "model/expression/expression_program.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

constexpr std::string_view kKeywords[] = {"alignas",       "alignof",     "and",
                                          "and_eq",        "asm",         "auto",
                                          "bitand",        "bitor",       "bool",
                                          "break",         "case",        "catch",
                                          "char",          "char16_t",    "char32_t",
                                          "char8_t",       "class",       "co_await",
                                          "co_return",     "co_yield",    "compl",
                                          "concept",       "const",       "const_cast",
                                          "consteval",     "constexpr",   "constinit",
                                          "continue",      "decltype",    "default",
                                          "delete",        "do",          "double",
                                          "dynamic_cast",  "else",        "enum",
                                          "explicit",      "export",      "extern",
                                          "false",         "float",       "for",
                                          "friend",        "goto",        "if",
                                          "inline",        "int",         "long",
                                          "mutable",       "namespace",   "new",
                                          "noexcept",      "not",         "not_eq",
                                          "nullptr",       "operator",    "or",
                                          "or_eq",         "private",     "protected",
                                          "public",        "register",    "reinterpret_cast",
                                          "requires",      "return",      "short",
                                          "signed",        "sizeof",      "static",
                                          "static_assert", "static_cast", "struct",
                                          "switch",        "template",    "this",
                                          "thread_local",  "throw",       "true",
                                          "try",           "typedef",     "typeid",
                                          "typename",      "union",       "unsigned",
                                          "using",         "virtual",     "void",
                                          "volatile",      "wchar_t",     "while",
                                          "xor",           "xor_eq"};

/// Values that are looked up in a scope.
struct ScopeValues {
  const Scope& scope;

  std::optional<std::int64_t> find(const std::string& name) const { return scope.find(name); }
};

/// Values that a function returns.
struct FoundValues {
  const Expression::Find& find_value;

  std::optional<std::int64_t> find(const std::string& name) const { return find_value(name); }
};

/// Returns the length of a name with a few of its characters.
std::uint32_t tag_of(std::string_view name) {
  if (name.empty()) return 0;
  const auto at = [&](std::size_t i) { return std::uint32_t{static_cast<unsigned char>(name[i])}; };
  const std::size_t last = name.size() - 1;
  return static_cast<std::uint32_t>(name.size()) << 24 ^ at(0) << 18 ^ at(last / 2) << 12 ^
         at(last - last / 4) << 6 ^ at(last);
}

template <typename Values>
Result<std::int64_t> result_of(const detail::ExpressionProgram& program, Values values) {
  detail::Evaluator evaluator(program, values);
  std::int64_t value = 0;
  if (!evaluator.evaluate(program.root, value)) return evaluator.take_error();
  return value;
}

}  // namespace

void Scope::set(std::string_view name, std::int64_t value) {
  const std::size_t place = values_.size();
  values_.push_back(value);
  if (names_ != nullptr && place < names_->texts.size() && names_->texts[place] == name) return;
  if (names_ == nullptr) {
    names_ = std::make_shared<Names>();
  } else if (names_.use_count() > 1) {
    names_ = std::make_shared<Names>(*names_);
  } else {
    // The names change after all that another thread read before it let go of them.
    std::atomic_thread_fence(std::memory_order_acquire);
  }
  names_->texts.resize(place);
  names_->tags.resize(place);
  names_->texts.emplace_back(name);
  names_->tags.push_back(tag_of(name));
}

std::optional<std::int64_t> Scope::find(std::string_view name) const {
  const std::size_t at = place(name);
  return at == PlacedExpression::kUnknown ? std::nullopt : std::optional(values_[at]);
}

std::size_t Scope::place(std::string_view name) const {
  constexpr std::size_t kAtOnce = 16;  // tags that are compared without a branch
  const std::uint32_t tag = tag_of(name);
  for (std::size_t end = values_.size(); end > 0;) {
    const std::size_t begin = end > kAtOnce ? end - kAtOnce : 0;
    const std::uint32_t* const tags = names_->tags.data() + begin;
    bool has = end - begin < kAtOnce;
    if (!has) {
      for (std::size_t i = 0; i < kAtOnce; ++i) has |= tags[i] == tag;
    }
    for (std::size_t i = has ? end : begin; i-- > begin;) {
      if (tags[i - begin] == tag && names_->texts[i] == name) return i;
    }
    end = begin;
  }
  return PlacedExpression::kUnknown;
}

Scope Scope::with(std::span<const std::int64_t> values) const {
  Scope scope;
  scope.names_ = names_;
  if (names_ != nullptr) scope.values_.reserve(names_->texts.size());
  scope.values_.assign(values.begin(), values.end());
  return scope;
}

bool is_value_name(std::string_view name) {
  // C++ reserves names with two underscores, and those that begin with an underscore and a capital.
  const bool reserved = name.find("__") != std::string_view::npos ||
                        (name.size() > 1 && name[0] == '_' && name[1] >= 'A' && name[1] <= 'Z');
  return is_identifier(name) && !reserved && !detail::find_function(name) &&
         std::find(std::begin(kKeywords), std::end(kKeywords), name) == std::end(kKeywords);
}

Result<Expression> Expression::parse(std::string_view text) {
  KW_ASSIGN(detail::ExpressionProgram program, detail::parse_expression(text));
  Expression expression;
  expression.program_ = std::make_shared<const detail::ExpressionProgram>(std::move(program));
  return expression;
}

Result<std::int64_t> Expression::evaluate(const Scope& scope) const {
  if (!program_) return Error{ErrorCode::internal, "an expression that was never parsed"};
  return result_of(*program_, ScopeValues{scope});
}

Result<std::int64_t> Expression::evaluate(const Find& find) const {
  if (!program_) return Error{ErrorCode::internal, "an expression that was never parsed"};
  return result_of(*program_, FoundValues{find});
}

std::string Expression::explain_zero(const Scope& scope) const {
  if (!program_) return "it is empty";
  return detail::Evaluator(*program_, ScopeValues{scope}).explain(program_->root);
}

/// The nodes with values by place, for `detail::evaluate`.
template <typename Find>
struct PlacedExpression::Source {
  const Node* nodes;
  Find find;

  const Node& node(int index) const { return nodes[index]; }
  bool look_up(const Node& node, std::int64_t& out) const {
    return static_cast<std::size_t>(node.value) != kUnknown &&
           find(static_cast<std::size_t>(node.value), out);
  }
  static bool fail(detail::Failure, const Node&, std::int64_t, std::int64_t) { return false; }
};

/// Copies what is left of an expression if some values are known.
class PlacedExpression::Folding {
 public:
  Folding(const PlacedExpression& from, std::span<const std::optional<std::int64_t>> known)
      : from_(from), known_(known) {}

  PlacedExpression take() {
    fold(static_cast<std::uint16_t>(from_.nodes_.size() - 1));
    return std::move(folded_);
  }

 private:
  using Op = detail::Op;

  std::optional<std::int64_t> value_of(std::uint16_t index) const {
    const auto find = [&](std::size_t place, std::int64_t& out) {
      if (known_[place]) out = *known_[place];
      return known_[place].has_value();
    };
    Source<decltype(find)> source{from_.nodes_.data(), find};
    std::int64_t value = 0;
    return detail::evaluate(source, index, value) ? std::optional(value) : std::nullopt;
  }

  std::uint16_t fold(std::uint16_t index) {
    Node node = from_.nodes_[index];
    const auto literal = [&](std::int64_t value) {
      return folded_.add({Op::literal, node.narrow, 0, 0, 0, value});
    };
    if (const auto value = value_of(index)) return literal(*value);
    if (node.op == Op::name) return folded_.add(node);
    const bool is_choice = node.op == Op::conditional;
    if (const auto first = is_choice || node.op == Op::logical_and || node.op == Op::logical_or
                               ? value_of(node.a)
                               : std::nullopt) {
      if (is_choice) return fold(*first != 0 ? node.b : node.c);
      // The second operand is left, as 0 or 1.
      node.op = Op::not_equal;
      node.a = fold(node.b);
      node.b = literal(0);
      return folded_.add(node);
    }
    node.a = fold(node.a);
    if (!detail::is_unary(node.op)) node.b = fold(node.b);
    if (is_choice) node.c = fold(node.c);
    return folded_.add(node);
  }

  const PlacedExpression& from_;
  std::span<const std::optional<std::int64_t>> known_;
  PlacedExpression folded_;
};

PlacedExpression::PlacedExpression(const Expression& expression, const Scope& names) {
  if (!expression.program_) return;
  std::vector<std::size_t> places;
  for (const std::string& name : expression.names()) places.push_back(names.place(name));
  add(*expression.program_, expression.program_->root, places);
}

PlacedExpression::PlacedExpression(const Expression& expression,
                                   std::span<const std::size_t> places) {
  if (expression.program_) add(*expression.program_, expression.program_->root, places);
}

std::uint16_t PlacedExpression::add(const detail::ExpressionProgram& program, int index,
                                    std::span<const std::size_t> places) {
  const detail::Node& from = program.nodes[static_cast<std::size_t>(index)];
  Node node{from.op, from.narrow, 0, 0, 0, from.value};
  switch (from.op) {
    case detail::Op::literal:
      break;
    case detail::Op::name:
      node.value = static_cast<std::int64_t>(places[static_cast<std::size_t>(from.a)]);
      break;
    case detail::Op::conditional:
      node.c = add(program, from.c, places);
      [[fallthrough]];
    default:
      node.a = add(program, from.a, places);
      if (!detail::is_unary(from.op)) node.b = add(program, from.b, places);
  }
  return add(node);
}

std::uint16_t PlacedExpression::add(const Node& node) {
  nodes_.push_back(node);
  return static_cast<std::uint16_t>(nodes_.size() - 1);
}

std::optional<std::int64_t> PlacedExpression::evaluate(std::span<const std::int64_t> values) const {
  if (nodes_.empty()) return std::nullopt;
  const auto find = [&](std::size_t place, std::int64_t& out) {
    out = values[place];
    return true;
  };
  Source<decltype(find)> source{nodes_.data(), find};
  std::int64_t value = 0;
  if (!detail::evaluate(source, static_cast<int>(nodes_.size()) - 1, value)) return std::nullopt;
  return value;
}

PlacedExpression PlacedExpression::folded(
    std::span<const std::optional<std::int64_t>> known) const {
  return nodes_.empty() ? *this : Folding(*this, known).take();
}

std::vector<std::size_t> PlacedExpression::places() const {
  std::vector<std::size_t> places;
  for (const Node& node : nodes_) {
    if (node.op == detail::Op::name) places.push_back(static_cast<std::size_t>(node.value));
  }
  return places;
}

std::optional<std::int64_t> PlacedExpression::constant() const {
  const bool depends =
      std::ranges::any_of(nodes_, [](const Node& node) { return node.op == detail::Op::name; });
  return depends ? std::nullopt : evaluate({});
}

PlacedExpression PlacedExpression::moved(std::span<const std::size_t> to) const {
  PlacedExpression moved = *this;
  for (Node& node : moved.nodes_) {
    if (node.op != detail::Op::name || static_cast<std::size_t>(node.value) == kUnknown) continue;
    node.value = static_cast<std::int64_t>(to[static_cast<std::size_t>(node.value)]);
  }
  return moved;
}

std::size_t PlacedExpressions::slot(const Expression& expression) const {
  constexpr std::uint64_t kSpread = 0x9e37'79b9'7f4a'7c15;
  const std::uint64_t spread = reinterpret_cast<std::uintptr_t>(&expression) * kSpread;
  std::size_t at = (spread >> 32) & (slots_.size() - 1);
  while (slots_[at].expression != nullptr && slots_[at].expression != &expression) {
    at = (at + 1) & (slots_.size() - 1);
  }
  return at;
}

void PlacedExpressions::add(const Expression& expression, PlacedExpression placed) {
  if (2 * (count_ + 1) > slots_.size()) {
    std::vector<Slot> before(std::max<std::size_t>(2 * slots_.size(), 64));
    before.swap(slots_);
    for (const Slot& one : before) {
      if (one.expression != nullptr) slots_[slot(*one.expression)] = one;
    }
  }
  Slot& own = slots_[slot(expression)];
  if (own.expression == nullptr) ++count_;
  own = {.expression = &expression};
  if (const auto constant = placed.constant()) {
    own.value = *constant;
  } else {
    own.index = placed_.size();
    placed_.push_back(std::move(placed));
  }
}

std::optional<std::int64_t> PlacedExpressions::evaluate(
    const Expression& expression, std::span<const std::int64_t> values) const {
  if (slots_.empty()) return std::nullopt;
  const Slot& own = slots_[slot(expression)];
  if (own.expression == nullptr) return std::nullopt;
  return own.index == kConstant ? own.value : placed_[own.index].evaluate(values);
}

Result<std::int64_t> ValueSource::evaluate(const Expression& expression) const {
  if (placed_ != nullptr) {
    if (const auto value = placed_->evaluate(expression, scope_.values())) return *value;
  }
  return expression.evaluate(scope_);  // which says why there is none
}

const std::string& Expression::text() const {
  static const auto& empty = *new std::string;
  return program_ ? program_->text : empty;
}

const std::vector<std::string>& Expression::names() const {
  static const auto& none = *new std::vector<std::string>;
  return program_ ? program_->names : none;
}

}  // namespace kernwright
