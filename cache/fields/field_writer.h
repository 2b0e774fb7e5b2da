#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "model/result/counters.h"
#include "model/result/trial.h"

namespace kernwright {

/// Writes one JSON object on one line, field by field in the order of the calls. `FieldReader`
/// reads it. No tree is built first, so the thousand numbers of a record cost no more than their
/// digits. Doubles come back bit by bit; one that is not finite becomes null. Bytes that are not
/// UTF-8 become replacement characters.
class FieldWriter {
 public:
  /// Writes a field. `value` is a text, a truth value, a number, null, a `NamedEnum`, a
  /// `Configuration`, a `MeasurePolicy`, a value with a `describe`, or an optional or a vector of
  /// one of these.
  template <typename T>
  void field(std::string_view name, const T& value) {
    member(name);
    put(value);
  }

  /// The same. Only a reader meets objects of older writers.
  template <typename T>
  void newer(std::string_view name, const T& value) {
    field(name, value);
  }

  /// Writes a field unless it has its usual value.
  template <typename T>
  void field_unless(std::string_view name, const T& value, const std::type_identity_t<T>& usual) {
    if (value != usual) field(name, value);
  }

  /// Writes the object `name`, whose fields `write()` writes.
  template <typename Write>
  void object(std::string_view name, const Write& write) {
    member(name);
    braces(write);
  }

  /// Returns the whole object.
  std::string text() const { return text_ + '}'; }

 private:
  template <typename Write>
  void braces(const Write& write) {
    text_ += '{';
    write();
    text_ += '}';
  }

  void member(std::string_view name);
  void separate();
  void put(std::nullptr_t) { text_ += "null"; }
  void put(std::string_view value);
  void put(std::same_as<bool> auto value) { text_ += value ? "true" : "false"; }
  void put(double value);
  void put(int value) { put(std::int64_t{value}); }
  void put(std::int64_t value);
  void put(std::uint64_t value);
  void put(NamedEnum auto value) { put(to_string(value)); }
  void put(const MeasurePolicy& value) { put(value.text()); }
  void put(const Configuration& value);
  template <typename T>
  void put(const std::optional<T>& value) {
    value ? put(*value) : put(nullptr);
  }
  template <typename T>
  void put(const std::vector<T>& values) {
    text_ += '[';
    for (const T& value : values) {
      separate();
      put(value);
    }
    text_ += ']';
  }
  template <DescribedTo<FieldWriter> T>
  void put(const T& value) {
    braces([&] { describe(*this, value); });
  }

  std::string text_ = "{";
};

void describe(FieldWriter& json, const CountedKernel& kernel);

/// Returns the JSON object of a described value.
template <DescribedTo<FieldWriter> T>
std::string fields_text(const T& value) {
  FieldWriter json;
  describe(json, value);
  return json.text();
}

}  // namespace kernwright
