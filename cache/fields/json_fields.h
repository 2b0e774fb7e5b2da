#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "model/result/counters.h"
#include "model/result/trial.h"
#include "support/try.h"
#include <kernwright/result.h>

namespace kernwright {

/// Reads the fields of a JSON object by name. The first field that is missing or of another type is
/// kept as the defect, with its path from the root. Every read after it leaves its target alone. So
/// a parser reads all it needs and asks for the defect once. Fields that nobody asks for are
/// ignored. Readers of nested objects share the root's defect, and the root outlives them.
class FieldReader {
 public:
  using Json = nlohmann::ordered_json;

  explicit FieldReader(const Json& root) : FieldReader(root, "", own_defect_) {}
  FieldReader(const FieldReader&) = delete;
  FieldReader& operator=(const FieldReader&) = delete;

  void field(std::string_view name, std::string& out);
  void field(std::string_view name, bool& out);
  void field(std::string_view name, double& out);
  void field(std::string_view name, int& out);
  void field(std::string_view name, std::int64_t& out);
  void field(std::string_view name, std::uint64_t& out);
  void field(std::string_view name, std::vector<double>& out);
  void field(std::string_view name, std::vector<int>& out);
  void field(std::string_view name, std::vector<std::int64_t>& out);
  void field(std::string_view name, std::vector<std::string>& out);
  void field(std::string_view name, Configuration& out);
  void field(std::string_view name, MeasurePolicy& out);
  template <NamedEnum Enum>
  void field(std::string_view name, Enum& out) {
    if (const auto value = spelled(name, names_of(out))) out = static_cast<Enum>(*value);
  }
  template <DescribedTo<FieldReader> T>
  void field(std::string_view name, T& out) {
    object(name, [&](FieldReader& nested) { describe(nested, out); });
  }
  template <DescribedTo<FieldReader> T>
  void field(std::string_view name, std::vector<T>& out) {
    each_object(name, [&](FieldReader& nested) { describe(nested, out.emplace_back()); });
  }
  /// Reads a field that may be missing or null. Then `out` keeps its value.
  template <typename T>
  void field(std::string_view name, std::optional<T>& out) {
    if (has(name)) field(name, out.emplace());
  }

  /// Reads a field that older writers did not have: without it `out` keeps its value. A field that
  /// is null counts as present, and has another type.
  template <typename T>
  void newer(std::string_view name, T& out) {
    if (contains(name)) field(name, out);
  }

  /// Reads a field that is not written when it has its usual value, which `out` has now.
  template <typename T>
  void field_unless(std::string_view name, T& out, const std::type_identity_t<T>& /*usual*/) {
    newer(name, out);
  }

  /// Calls `parse(FieldReader&)` with the nested object `name`.
  template <typename Parse>
  void object(std::string_view name, const Parse& parse) {
    if (const Json* value = find(name, Json::value_t::object)) {
      FieldReader nested(*value, path_of(name), defect_);
      parse(nested);
    }
  }

  /// Calls `parse(FieldReader&)` with each object of the array `name`, in order.
  template <typename Parse>
  void each_object(std::string_view name, const Parse& parse) {
    const Json* array = find(name, Json::value_t::array);
    for (std::size_t i = 0; array != nullptr && i < array->size(); ++i) {
      const std::string path = path_of(name) + "[" + std::to_string(i) + "]";
      if (!expect((*array)[i], Json::value_t::object, path)) return;
      FieldReader nested((*array)[i], path, defect_);
      parse(nested);
    }
  }

  /// Returns whether the field is there, with any type.
  bool contains(std::string_view name) const { return object_.contains(name); }

  /// Returns whether the field is there and not null.
  bool has(std::string_view name) const;

  /// Keeps `what` as the defect of field `name`, unless there is an earlier one.
  void fail(std::string_view name, std::string_view what);

  /// Returns the first defect, "winner.resources.registers: missing".
  const std::optional<std::string>& defect() const { return defect_; }

 private:
  FieldReader(const Json& object, std::string path, std::optional<std::string>& defect)
      : object_(object), path_(std::move(path)), defect_(defect) {}

  std::string path_of(std::string_view name) const;
  const Json* find(std::string_view name);
  const Json* find(std::string_view name, Json::value_t type);
  bool expect(const Json& value, Json::value_t type, const std::string& path);
  /// Returns the place of a text among `names`. It is a defect if it is none of them.
  std::optional<std::size_t> spelled(std::string_view name,
                                     std::span<const std::string_view> names);
  void set_defect(const std::string& path, std::string_view what);

  const Json& object_;
  std::string path_;
  std::optional<std::string> own_defect_;
  std::optional<std::string>& defect_;
};

void describe(FieldReader& fields, CountedKernel& kernel);

/// Parses a text as a JSON object. Errors: `corrupt`, which names `what`, also if the text exceeds
/// the limits of `parse_value`. No text of ours does, and to parse it would take far more memory or
/// time than its length says.
Result<FieldReader::Json> parse_object(std::string_view json, std::string_view what);

/// Parses one JSON object with `parse(FieldReader&)`. Errors: see `parse_object`; `corrupt` naming
/// `what` and the field.
template <typename Parse>
Result<void> parse_fields(std::string_view json, std::string_view what, const Parse& parse) {
  KW_ASSIGN(const FieldReader::Json root, parse_object(json, what));
  FieldReader reader(root);
  parse(reader);
  if (reader.defect())
    return Error{ErrorCode::corrupt, std::string(what) + ": " + *reader.defect()};
  return {};
}

/// Reads a described value. Errors as of `parse_fields`.
template <typename T>
Result<T> read_fields(std::string_view json, std::string_view what) {
  T value;
  KW_TRY(parse_fields(json, what, [&](FieldReader& fields) { describe(fields, value); }));
  return value;
}

/// Returns one line of text. Bytes that are not UTF-8 become replacement characters.
std::string dump(const FieldReader::Json& json);

}  // namespace kernwright
