#include "service/sweep/config_fields.h"

#include <variant>

namespace kernwright {
namespace {

/// So large that products of two sizes and a small factor fit into 64 bits.
constexpr std::int64_t kLargestSize = std::int64_t{1} << 30;

}  // namespace

const JsonNode* ConfigFields::find(const FieldNames& names) {
  for (const std::string_view name : names) {
    const JsonNode* node = name.empty() ? nullptr : root_.find(name);
    if (node == nullptr) continue;
    name_ = name;
    return node;
  }
  name_ = names.front();
  return nullptr;
}

std::int64_t ConfigFields::size(const FieldNames& names, std::int64_t fallback) {
  const JsonNode* node = find(names);
  if (node == nullptr) return by_default(fallback);
  return integer(*node, 1);
}

std::optional<std::int64_t> ConfigFields::size_or_none(const FieldNames& names,
                                                       std::optional<std::int64_t> fallback) {
  const JsonNode* node = find(names);
  if (node == nullptr) return fallback ? by_default(*fallback) : fallback;
  if (is_null(*node)) return std::nullopt;
  return integer(*node, 1);
}

std::int64_t ConfigFields::count(const FieldNames& names, std::int64_t fallback) {
  const JsonNode* node = find(names);
  if (node == nullptr) return by_default(fallback);
  return is_null(*node) ? 0 : integer(*node, 0);
}

std::optional<double> ConfigFields::number_or_none(const FieldNames& names, double fallback) {
  const JsonNode* node = find(names);
  if (node == nullptr) return by_default(fallback);
  double value = 0;
  if (is_null(*node) || (node->number(value) && value > 0)) {
    return value > 0 ? std::optional(value) : std::nullopt;
  }
  refuse(*node, "a number above 0");
  return fallback;
}

std::string ConfigFields::text(const FieldNames& names, std::string_view fallback) {
  const JsonNode* node = find(names);
  if (node == nullptr) {
    by_default(fallback);
    return std::string(fallback);
  }
  if (node->string()) return *node->string();
  refuse(*node, "a string");
  return {};
}

bool ConfigFields::boolean(const FieldNames& names, bool fallback) {
  const JsonNode* node = find(names);
  if (node == nullptr || is_null(*node)) return node == nullptr && fallback;
  if (node->boolean()) return *node->boolean();
  refuse(*node, "true or false");
  return false;
}

void ConfigFields::refuse(const JsonNode& node, std::string_view what) {
  const std::int64_t* number = node.integer();
  fail(node, concat(name_, " must be ", what, ", is ",
                    number ? concat(*number) : std::string(node.kind())));
}

void ConfigFields::fail(const JsonNode& node, std::string_view what) {
  if (error_.empty()) error_ = concat(file_, ":", node.line, ": ", what);
}

bool ConfigFields::is_null(const JsonNode& node) {
  return std::holds_alternative<std::nullptr_t>(node.value);
}

std::int64_t ConfigFields::integer(const JsonNode& node, std::int64_t least) {
  const std::int64_t* value = node.integer();
  if (value && *value >= least && *value <= kLargestSize) return *value;
  refuse(node, concat("an integer from ", least, " to ", kLargestSize));
  return 1;
}

}  // namespace kernwright
