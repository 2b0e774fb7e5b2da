#include "model/expression/json_reader.h"

#include <algorithm>

namespace kernwright::detail {

template <typename T>
const T* JsonReader::get(std::string_view wanted) const {
  if (!node_) return nullptr;  // reported by required()
  const T* value = std::get_if<T>(&node_->value);
  if (!value) fail(concat("expected ", wanted, ", found ", node_->kind()));
  return value;
}

JsonReader JsonReader::child(const JsonNode* node, std::string_view name) const {
  std::string path = path_;
  if (!path.empty()) path += '.';
  path += name;
  return {node, std::move(path), place_, *diagnostics_};
}

void JsonReader::expect_keys(std::initializer_list<std::string_view> known) const {
  const auto* object = get<JsonNode::Object>("object");
  if (!object) return;
  for (const auto& [name, node] : *object) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    std::string list;
    for (const std::string_view key : known) list += concat(list.empty() ? "" : ", ", key);
    child(&node, name).fail(concat("unknown key, known are ", list));
  }
}

JsonReader JsonReader::optional(std::string_view name) const {
  return child(node_ ? node_->find(name) : nullptr, name);
}

JsonReader JsonReader::required(std::string_view name) const {
  const JsonReader member = optional(name);
  if (!member.present()) member.fail("missing");
  return member;
}

std::vector<std::pair<std::string, JsonReader>> JsonReader::members() const {
  std::vector<std::pair<std::string, JsonReader>> readers;
  if (const auto* object = get<JsonNode::Object>("object")) {
    for (const auto& [name, node] : *object) readers.emplace_back(name, child(&node, name));
  }
  return readers;
}

std::vector<JsonReader> JsonReader::elements() const {
  std::vector<JsonReader> readers;
  if (const auto* array = get<JsonNode::Array>("array")) {
    for (const JsonNode& node : *array) {
      const std::string path = path_ + '[' + std::to_string(readers.size()) + ']';
      readers.push_back(JsonReader(&node, path, place_, *diagnostics_));
    }
  }
  return readers;
}

std::string JsonReader::string() const {
  const auto* value = get<std::string>("string");
  return value ? *value : std::string();
}

std::int64_t JsonReader::integer() const {
  const auto* value = get<std::int64_t>("integer");
  return value ? *value : 0;
}

double JsonReader::number() const {
  double value = 0;
  if (node_ && !node_->number(value)) fail(concat("expected number, found ", node_->kind()));
  return value;
}

bool JsonReader::boolean() const {
  const auto* value = get<bool>("boolean");
  return value && *value;
}

Expression JsonReader::expression(std::span<const std::string> names) const {
  const auto* text = get<std::string>("expression in a string");
  return text ? expression_of(*text, names) : Expression();
}

Expression JsonReader::expression_of(std::string_view text,
                                     std::span<const std::string> names) const {
  Result<Expression> parsed = Expression::parse(text);
  if (!parsed) {
    fail(concat("\"", text, "\": ", parsed.error().message));
    return {};
  }
  for (const std::string& name : parsed->names()) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    fail(concat("\"", text, "\": unknown name \"", name, "\", known are ", join(names)));
  }
  return *std::move(parsed);
}

Expression JsonReader::expression_or(std::string_view fallback,
                                     std::span<const std::string> names) const {
  return present() ? expression(names) : literal(fallback);
}

std::vector<Expression> JsonReader::expressions(std::span<const std::string> names) const {
  std::vector<Expression> parsed;
  for (const JsonReader& element : elements()) parsed.push_back(element.expression(names));
  return parsed;
}

std::string JsonReader::value_name() const {
  std::string name = string();
  if (present() && !is_value_name(name)) {
    fail(concat("\"", name, "\" cannot be a name: an identifier that C++ does not reserve"));
  }
  return name;
}

Expression literal(std::string_view text) {
  Result<Expression> parsed = Expression::parse(text);
  return parsed ? *std::move(parsed) : Expression();
}

std::string join(std::span<const std::string> words) {
  std::string text;
  for (const std::string& word : words) text += concat(text.empty() ? "" : ", ", word);
  return text;
}

}  // namespace kernwright::detail
