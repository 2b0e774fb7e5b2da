#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "support/json.h"
#include "support/text.h"

namespace kernwright {

/// A field's name, with another that transformers takes as well; empty: there is none.
using FieldNames = std::array<std::string_view, 2>;

/// The fields of a model's config. Remembers the first that does not hold what it should, and which
/// defaults were taken. A field that is null counts as one that says "none" where that means
/// something. The config and its file's name outlive it.
class ConfigFields {
 public:
  ConfigFields(const JsonNode& root, std::string_view file) : root_(root), file_(file) {}

  /// The first of `names` that there is.
  const JsonNode* find(const FieldNames& names);

  /// A size of 1 or more.
  std::int64_t size(const FieldNames& names, std::int64_t fallback);
  /// A size of 1 or more, or nothing where it is null. `fallback` may be nothing too.
  std::optional<std::int64_t> size_or_none(const FieldNames& names,
                                           std::optional<std::int64_t> fallback);
  /// A number of 0 or more; null is 0.
  std::int64_t count(const FieldNames& names, std::int64_t fallback);
  /// A number above 0, or nothing where it is null.
  std::optional<double> number_or_none(const FieldNames& names, double fallback);
  std::string text(const FieldNames& names, std::string_view fallback);
  bool boolean(const FieldNames& names, bool fallback);

  /// That `node` is not what the field that was looked up last has to be.
  void refuse(const JsonNode& node, std::string_view what);
  void fail(const JsonNode& node, std::string_view what);

  static bool is_null(const JsonNode& node);

  const JsonNode& root() const { return root_; }
  const std::string& error() const { return error_; }
  const std::string& defaults() const { return defaults_; }

 private:
  template <typename Value>
  Value by_default(const Value& value) {
    defaults_ += concat(defaults_.empty() ? "" : " ", name_, "=", value);
    return value;
  }
  std::int64_t integer(const JsonNode& node, std::int64_t least);

  const JsonNode& root_;
  std::string_view file_;
  std::string_view name_;
  std::string error_;
  std::string defaults_;
};

}  // namespace kernwright
