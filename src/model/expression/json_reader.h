#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/expression/expression.h"
#include "support/json.h"
#include "support/text.h"
#include <kernwright/result.h>

namespace kernwright::detail {

/// Keeps the first error while a hand-written JSON file is read. After an error reading goes on
/// with empty values, so readers need no check after each field.
class Diagnostics {
 public:
  explicit Diagnostics(std::string_view file) : Diagnostics(std::vector{std::string(file)}) {}
  /// `files` in the order in which `JsonPlace` counts them.
  explicit Diagnostics(std::vector<std::string> files) : files_(std::move(files)) {}

  bool ok() const { return message_.empty(); }
  Error error() const { return {ErrorCode::invalid_argument, message_}; }

  /// Keeps the error `file:line: field: what`, if it is the first.
  void fail(JsonPlace place, std::string_view field, std::string_view what) {
    if (!ok()) return;
    const std::string& file = files_[static_cast<std::size_t>(place.file)];
    message_ = concat(file, ":", place.line, ": ", field, ": ", what);
  }

 private:
  std::vector<std::string> files_;
  std::string message_;
};

/// One JSON value, with the path of its field and the place for errors. If the value has the wrong
/// kind, an accessor reports that and returns an empty value.
class JsonReader {
 public:
  /// The value of a whole file.
  JsonReader(const JsonNode& root, Diagnostics& diagnostics)
      : JsonReader(&root, "", {}, diagnostics) {}

  bool present() const { return node_ != nullptr; }
  bool is_object() const { return node_ && node_->object(); }
  bool is_array() const { return node_ && node_->array(); }
  bool is_string() const { return node_ && node_->string(); }
  bool is(std::string_view text) const {
    return node_ && node_->string() && *node_->string() == text;
  }
  JsonPlace place() const { return place_; }
  /// Returns null if the value is missing.
  const JsonNode* node() const { return node_; }
  Diagnostics& diagnostics() const { return *diagnostics_; }
  void fail(std::string_view what) const {
    diagnostics_->fail(place_, path_.empty() ? "file" : std::string_view(path_), what);
  }

  /// Reports every key of the object that is not in `known`.
  void expect_keys(std::initializer_list<std::string_view> known) const;
  /// Returns the member `name`, which may be missing.
  JsonReader optional(std::string_view name) const;
  /// Returns the member `name`; reports an error if it is missing.
  JsonReader required(std::string_view name) const;
  /// Returns the members of an object; none if the value is missing.
  std::vector<std::pair<std::string, JsonReader>> members() const;
  /// Returns the elements of an array; none if the value is missing.
  std::vector<JsonReader> elements() const;

  std::string string() const;
  std::int64_t integer() const;
  double number() const;
  bool boolean() const;
  /// Returns the value as an expression, whose names must be in `names`.
  Expression expression(std::span<const std::string> names) const;
  /// Does the same for `text`, which is a part of the value.
  Expression expression_of(std::string_view text, std::span<const std::string> names) const;
  /// Does the same, with the text `fallback` if the value is missing.
  Expression expression_or(std::string_view fallback, std::span<const std::string> names) const;
  /// Returns an array of expressions.
  std::vector<Expression> expressions(std::span<const std::string> names) const;
  /// Returns the value as a string that can be a name in the expression language.
  std::string value_name() const;

 private:
  /// `node` is null for a missing optional value.
  JsonReader(const JsonNode* node, std::string path, JsonPlace parent, Diagnostics& diagnostics)
      : node_(node),
        path_(std::move(path)),
        place_(node ? JsonPlace{node->file, node->line} : parent),
        diagnostics_(&diagnostics) {}

  template <typename T>
  const T* get(std::string_view wanted) const;
  JsonReader child(const JsonNode* node, std::string_view name) const;

  const JsonNode* node_;
  std::string path_;
  JsonPlace place_;
  Diagnostics* diagnostics_;
};

/// Returns the expression of a text that is known to be valid.
Expression literal(std::string_view text);

/// Returns "a, b, c" for messages.
std::string join(std::span<const std::string> words);

}  // namespace kernwright::detail
