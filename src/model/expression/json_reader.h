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

/// Collects the first error while a hand-written JSON file is read. Reading goes on after an error
/// with empty values, so that the readers need no check after every field.
class Diagnostics {
 public:
  explicit Diagnostics(std::string_view file) : file_(file) {}

  bool ok() const { return message_.empty(); }
  Error error() const { return {ErrorCode::invalid_argument, message_}; }

  /// Keeps `file:line: field: what`, if it is the first.
  void fail(int line, std::string_view field, std::string_view what) {
    if (ok()) message_ = concat(file_, ":", line, ": ", field, ": ", what);
  }

 private:
  std::string file_;
  std::string message_;
};

/// One JSON value with the path of fields that leads to it and the place for errors. Every accessor
/// reports a value of the wrong kind and then gives an empty one.
class JsonReader {
 public:
  /// `node` may be null: a missing optional value.
  JsonReader(const JsonNode* node, std::string path, int parent_line, Diagnostics& diagnostics)
      : node_(node),
        path_(std::move(path)),
        line_(node ? node->line : parent_line),
        diagnostics_(&diagnostics) {}

  bool present() const { return node_ != nullptr; }
  bool is_object() const { return node_ && node_->object(); }
  bool is_array() const { return node_ && node_->array(); }
  bool is_string() const { return node_ && node_->string(); }
  bool is(std::string_view text) const {
    return node_ && node_->string() && *node_->string() == text;
  }
  int line() const { return line_; }
  const std::string& path() const { return path_; }
  Diagnostics& diagnostics() const { return *diagnostics_; }
  void fail(std::string_view what) const {
    diagnostics_->fail(line_, path_.empty() ? "file" : std::string_view(path_), what);
  }

  /// Refuses every key of the object that is not in `known`.
  void expect_keys(std::initializer_list<std::string_view> known) const;
  /// The member `name`, which may be missing.
  JsonReader optional(std::string_view name) const;
  /// The member `name`; reports it where it is missing.
  JsonReader required(std::string_view name) const;
  /// The members of an object; none where the value is missing.
  std::vector<std::pair<std::string, JsonReader>> members() const;
  /// The elements of an array; none where the value is missing.
  std::vector<JsonReader> elements() const;

  std::string string() const;
  std::int64_t integer() const;
  double number() const;
  bool boolean() const;
  /// A string that `parse` accepts as an expression, each of whose names is in `names`.
  Expression expression(std::span<const std::string> names) const;
  /// The same of `text`, a part of the value.
  Expression expression_of(std::string_view text, std::span<const std::string> names) const;
  /// The same where the value is missing: `fallback` is its text.
  Expression expression_or(std::string_view fallback, std::span<const std::string> names) const;
  /// An array of expressions.
  std::vector<Expression> expressions(std::span<const std::string> names) const;
  /// A string that can name a value of the expression language.
  std::string value_name() const;

 private:
  template <typename T>
  const T* get(std::string_view wanted) const;
  JsonReader child(const JsonNode* node, std::string_view name) const;

  const JsonNode* node_;
  std::string path_;
  int line_;
  Diagnostics* diagnostics_;
};

/// The expression of a text known to be one.
Expression literal(std::string_view text);

/// "a, b, c" for messages.
std::string join(std::span<const std::string> words);

}  // namespace kernwright::detail
