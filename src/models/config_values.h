#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "models/model_type.h"
#include "support/json.h"
#include <kernwright/result.h>

namespace kernwright {

/// Reads the values of one model, each when it is first asked for, so fields that nothing depends
/// on may hold anything. The type and the config outlive it.
class ConfigValues {
 public:
  /// Takes the object `text` with the fields. `file` is the config's name in messages.
  ConfigValues(const ModelType& type, const JsonNode& text, std::string_view file)
      : type_(type), text_(text), file_(file) {}

  /// Sets the value of a name that is none of the type's.
  void give(const std::string& name, std::int64_t value) { given_[name] = value; }
  void give_text(const std::string& name, std::string text) { texts_[name] = std::move(text); }

  // Errors: `invalid_argument` naming file, line, field and value.
  Result<std::int64_t> evaluate(const Expression& expression);
  /// Returns a word, a number as the config has it, or else the value in expressions.
  Result<std::variant<double, std::string>> value(std::string_view name);
  /// Returns the text with values in place of names in braces.
  Result<std::string> fill(std::string_view text);

  /// Returns the defaults that were taken for missing fields, "head_dim=128 vocab_size=32000".
  const std::string& defaults() const { return defaults_; }

 private:
  /// Holds a value for expressions, and for texts if that differs.
  struct Value {
    std::int64_t integer = 0;
    std::optional<double> number = {};
    std::optional<std::string> word = {};
  };

  Result<Value> find(std::string_view name);
  Result<Value> read(const ModelField& field);
  Result<Value> read(const ModelField& field, const std::string& name, const JsonNode& node);
  Result<Value> read_number(const ModelField& field, const std::string& name, const JsonNode& node);
  Result<Value> count(const ModelField& field, const std::string& name, const JsonNode& node);
  Error refuse(const std::string& name, const JsonNode& node, std::string_view wanted) const;

  const ModelType& type_;
  const JsonNode& text_;
  std::string_view file_;
  std::map<std::string, std::int64_t, std::less<>> given_;
  std::map<std::string, std::string, std::less<>> texts_;
  std::map<std::string, std::optional<Value>, std::less<>> known_;  ///< nothing while it is read
  std::string defaults_;
};

}  // namespace kernwright
