#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/result/trial.h"

namespace kernwright {

/// Writes one JSON object on one line, field by field in the order of the calls. `FieldReader`
/// reads it. No tree is built first, so the thousand numbers of a record cost no more than their
/// digits. Doubles come back bit by bit; one that is not finite becomes null. Bytes that are not
/// UTF-8 become replacement characters.
class FieldWriter {
 public:
  /// Writes a field. `value` is a text, a truth value, a number, null, `Resources`, a
  /// `Configuration`, or a vector of one of these.
  template <typename T>
  void write(std::string_view name, const T& value) {
    member(name);
    put(value);
  }

  /// Writes the object `name`, whose fields `write()` writes.
  template <typename Write>
  void object(std::string_view name, const Write& write) {
    member(name);
    braces(write);
  }

  /// Writes the array `name` with an object for each item, whose fields `write(item)` writes.
  template <typename Items, typename Write>
  void each_object(std::string_view name, const Items& items, const Write& write) {
    member(name);
    brackets(items, [&](const auto& item) { braces([&] { write(item); }); });
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

  template <typename Items, typename Put>
  void brackets(const Items& items, const Put& put_item) {
    text_ += '[';
    for (const auto& item : items) {
      separate();
      put_item(item);
    }
    text_ += ']';
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
  void put(const Resources& value);
  void put(const Configuration& value);
  template <typename T>
  void put(const std::vector<T>& values) {
    brackets(values, [this](const T& value) { put(value); });
  }

  std::string text_ = "{";
};

}  // namespace kernwright
