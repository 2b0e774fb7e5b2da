#include "models/config_values.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <variant>

#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

/// So large that products of two sizes and a small factor fit into 64 bits.
constexpr std::int64_t kLargestSize = std::int64_t{1} << 30;

/// Returns the field at a path such as "rope_scaling.factor", or null.
const JsonNode* find_field(const JsonNode& object, std::string_view path) {
  const JsonNode* node = &object;
  for (const std::string_view name : split(path, '.')) {
    if (node != nullptr) node = node->find(name);
  }
  return node;
}

/// Returns the node for messages.
std::string shown(const JsonNode& node) {
  constexpr std::size_t kMost = 64;
  double number = 0;
  if (const std::int64_t* integer = node.integer()) return concat(*integer);
  if (node.number(number)) return concat(number);
  if (node.boolean()) return *node.boolean() ? "true" : "false";
  if (node.string() && node.string()->size() <= kMost) return concat('"', *node.string(), '"');
  return std::string(node.kind());
}

/// Returns a whole number, also one that is written with a point.
std::optional<std::int64_t> whole(const JsonNode& node) {
  double number = 0;
  if (const std::int64_t* integer = node.integer()) return *integer;
  if (!node.number(number) || !(std::abs(number) <= double{kLargestSize})) return std::nullopt;
  const auto integer = static_cast<std::int64_t>(number);
  return static_cast<double>(integer) == number ? std::optional(integer) : std::nullopt;
}

}  // namespace

Result<std::int64_t> ConfigValues::evaluate(const Expression& expression) {
  std::optional<Error> failed;
  Result<std::int64_t> value =
      expression.evaluate([&](const std::string& name) -> std::optional<std::int64_t> {
        Result<Value> found = find(name);
        if (found) return found->integer;
        failed = std::move(found).error();
        return std::nullopt;
      });
  if (failed) return *std::move(failed);
  if (value) return value;
  return Error{ErrorCode::invalid_argument,
               concat(file_, ": \"", expression.text(), "\": ", value.error().message)};
}

Result<std::variant<double, std::string>> ConfigValues::value(std::string_view name) {
  using Shown = std::variant<double, std::string>;
  if (const auto given = texts_.find(name); given != texts_.end()) return Shown(given->second);
  KW_ASSIGN(Value value, find(name));
  if (value.word) return Shown(*std::move(value.word));
  return Shown(value.number.value_or(static_cast<double>(value.integer)));
}

Result<std::string> ConfigValues::fill(std::string_view text) {
  std::string filled;
  std::optional<Error> failed;
  visit_parts(text, [&](std::string_view part, bool is_name) {
    if (!is_name || failed) {
      filled += part;
    } else if (const auto given = texts_.find(part); given != texts_.end()) {
      filled += given->second;
    } else if (Result<Value> value = find(part); !value) {
      failed = std::move(value).error();
    } else {
      filled += value->word     ? *value->word
                : value->number ? concat(*value->number)
                                : concat(value->integer);
    }
  });
  if (failed) return *std::move(failed);
  return filled;
}

Result<ConfigValues::Value> ConfigValues::find(std::string_view name) {
  if (const auto given = given_.find(name); given != given_.end()) return Value{given->second};
  const auto defined = type_.values.find(name);
  if (defined == type_.values.end()) {
    return Error{ErrorCode::invalid_argument, concat(type_.name, " has no value ", name)};
  }
  const auto [known, is_new] = known_.try_emplace(std::string(name));
  if (!is_new && known->second) return *known->second;
  if (!is_new) {
    return Error{ErrorCode::invalid_argument,
                 concat("model ", type_.name, ": ", name, " depends on itself")};
  }
  Value value;
  if (const auto* expression = std::get_if<Expression>(&defined->second)) {
    KW_ASSIGN(value.integer, evaluate(*expression));
  } else {
    KW_ASSIGN(value, read(std::get<ModelField>(defined->second)));
  }
  known->second = value;
  return value;
}

Result<ConfigValues::Value> ConfigValues::read(const ModelField& field) {
  for (const std::string& name : field.names) {
    const JsonNode* node = find_field(text_, name);
    if (node != nullptr && !node->is_null()) return read(field, name, *node);
    if (node != nullptr && !field.none && field.kind != FieldKind::flag) {
      return read(field, name, *node);
    }
    if (node == nullptr) continue;
    if (!field.none) return Value{};
    KW_ASSIGN(const std::int64_t none, evaluate(*field.none));
    return Value{none};
  }
  const std::string& name = field.names.front();
  if (field.fallback) {
    KW_ASSIGN(Value value, read(field, name, *field.fallback));
    if (field.kind != FieldKind::flag) {
      defaults_ += concat(defaults_.empty() ? "" : " ", name, '=');
      defaults_ += field.fallback->string() ? *field.fallback->string() : shown(*field.fallback);
    }
    return value;
  }
  if (field.none) {
    KW_ASSIGN(const std::int64_t none, evaluate(*field.none));
    return Value{none};
  }
  if (field.kind == FieldKind::flag) return Value{};
  return Error{ErrorCode::invalid_argument,
               concat(file_, ":", text_.line, ": ", name, " is missing")};
}

Result<ConfigValues::Value> ConfigValues::read(const ModelField& field, const std::string& name,
                                               const JsonNode& node) {
  switch (field.kind) {
    case FieldKind::size:
    case FieldKind::count: {
      const std::int64_t least = field.kind == FieldKind::size ? 1 : 0;
      const std::optional<std::int64_t> value = whole(node);
      if (value && *value >= least && *value <= kLargestSize) return Value{*value};
      return refuse(name, node, concat("an integer from ", least, " to ", kLargestSize));
    }
    case FieldKind::flag:
      if (!node.boolean()) return refuse(name, node, "true or false");
      return Value{*node.boolean() ? 1 : 0};
    case FieldKind::number:
      return read_number(field, name, node);
    case FieldKind::word: {
      if (!node.string()) return refuse(name, node, "a string");
      const auto ours = field.words.find(*node.string());
      return Value{0, {}, ours == field.words.end() ? *node.string() : ours->second};
    }
    case FieldKind::list:
      return count(field, name, node);
  }
  return Error{};
}

/// Reads a number. Without a factor it is 1 in expressions, unless it is 0.
Result<ConfigValues::Value> ConfigValues::read_number(const ModelField& field,
                                                      const std::string& name,
                                                      const JsonNode& node) {
  double number = 0;
  const bool may_be_zero = field.none.has_value();
  const bool is_number = node.number(number) && std::isfinite(number);
  if (!is_number || !(may_be_zero ? number >= 0 : number > 0)) {
    return refuse(name, node, may_be_zero ? "a number from 0 on" : "a number above 0");
  }
  if (!field.times) return Value{number > 0 ? 1 : 0, number};
  KW_ASSIGN(const std::int64_t times, evaluate(*field.times));
  number *= static_cast<double>(times);
  if (number > double{kLargestSize}) {
    return refuse(name, node, concat("a share of ", times, " up to ", kLargestSize));
  }
  return Value{static_cast<std::int64_t>(number)};
}

/// Counts the different elements of a list for which `counts` holds.
Result<ConfigValues::Value> ConfigValues::count(const ModelField& field, const std::string& name,
                                                const JsonNode& node) {
  std::string wanted = "a list of ";
  if (field.elements.empty()) wanted += "integers";
  for (const std::string& element : field.elements) {
    wanted += concat(&element == &field.elements.front() ? "\"" : " and \"", element, '"');
  }
  if (!node.array()) return refuse(name, node, wanted);
  std::set<std::int64_t> different;
  for (const JsonNode& each : *node.array()) {
    std::optional<std::int64_t> element;
    if (field.elements.empty() && each.integer()) element = *each.integer();
    for (std::size_t i = 0; each.string() && i < field.elements.size(); ++i) {
      if (field.elements[i] == *each.string()) element = static_cast<std::int64_t>(i);
    }
    if (!element) return refuse(name, each, wanted);
    different.insert(*element);
  }
  Value value;
  for (const std::int64_t element : different) {
    give("element", element);
    KW_ASSIGN(const std::int64_t counts, evaluate(*field.counts));
    value.integer += counts != 0 ? 1 : 0;
  }
  return value;
}

Error ConfigValues::refuse(const std::string& name, const JsonNode& node,
                           std::string_view wanted) const {
  return {ErrorCode::invalid_argument,
          concat(file_, ":", node.line, ": ", name, " must be ", wanted, ", is ", shown(node))};
}

}  // namespace kernwright
