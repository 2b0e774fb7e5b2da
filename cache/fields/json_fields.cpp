#include "cache/fields/json_fields.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "support/json.h"
#include "support/text.h"

namespace kernwright {

using Json = FieldReader::Json;

namespace {

/// Describes a value for messages: a number in full, any other value by its type, such as "string"
/// or "null".
std::string described(const Json& value) {
  return value.is_number() ? value.dump() : value.type_name();
}

bool fits_64_bits(const Json& value) {
  return value.is_number_unsigned() ? std::in_range<std::int64_t>(value.get<std::uint64_t>())
                                    : value.is_number_integer();
}

}  // namespace

void FieldReader::field(std::string_view name, std::string& out) {
  if (const Json* value = find(name, Json::value_t::string)) out = value->get<std::string>();
}

void FieldReader::field(std::string_view name, bool& out) {
  if (const Json* value = find(name, Json::value_t::boolean)) out = value->get<bool>();
}

void FieldReader::field(std::string_view name, double& out) {
  const Json* value = find(name);
  if (value == nullptr) return;
  if (!value->is_number()) return fail(name, "a number expected, not " + described(*value));
  out = value->get<double>();
}

void FieldReader::field(std::string_view name, std::int64_t& out) {
  const Json* value = find(name);
  if (value == nullptr) return;
  if (!fits_64_bits(*value))
    return fail(name, "a 64-bit integer expected, not " + described(*value));
  out = value->get<std::int64_t>();
}

void FieldReader::field(std::string_view name, std::uint64_t& out) {
  const Json* value = find(name);
  if (value == nullptr) return;
  if (!value->is_number_unsigned()) {
    return fail(name, "an unsigned 64-bit integer expected, not " + described(*value));
  }
  out = value->get<std::uint64_t>();
}

void FieldReader::field(std::string_view name, int& out) {
  std::int64_t wide = out;
  field(name, wide);
  if (!std::in_range<int>(wide)) return fail(name, concat(wide, " is no 32-bit integer"));
  out = static_cast<int>(wide);
}

void FieldReader::field(std::string_view name, std::vector<double>& out) {
  const Json* array = find(name, Json::value_t::array);
  for (std::size_t i = 0; array != nullptr && i < array->size(); ++i) {
    const Json& value = (*array)[i];
    if (!value.is_number()) {
      return fail(concat(name, '[', i, ']'), "a number expected, not " + described(value));
    }
    out.push_back(value.get<double>());
  }
}

void FieldReader::field(std::string_view name, std::vector<int>& out) {
  const Json* array = find(name, Json::value_t::array);
  for (std::size_t i = 0; array != nullptr && i < array->size(); ++i) {
    const Json& value = (*array)[i];
    if (!fits_64_bits(value) || !std::in_range<int>(value.get<std::int64_t>())) {
      return fail(concat(name, '[', i, ']'), "a 32-bit integer expected, not " + described(value));
    }
    out.push_back(value.get<int>());
  }
}

void FieldReader::field(std::string_view name, std::vector<std::int64_t>& out) {
  const Json* array = find(name, Json::value_t::array);
  for (std::size_t i = 0; array != nullptr && i < array->size(); ++i) {
    const Json& value = (*array)[i];
    if (!fits_64_bits(value)) {
      return fail(concat(name, '[', i, ']'), "a 64-bit integer expected, not " + described(value));
    }
    out.push_back(value.get<std::int64_t>());
  }
}

void FieldReader::field(std::string_view name, std::vector<std::string>& out) {
  const Json* array = find(name, Json::value_t::array);
  for (std::size_t i = 0; array != nullptr && i < array->size(); ++i) {
    const std::string path = path_of(concat(name, '[', i, ']'));
    if (!expect((*array)[i], Json::value_t::string, path)) return;
    out.push_back((*array)[i].get<std::string>());
  }
}

void FieldReader::field(std::string_view name, Configuration& out) {
  object(name, [&](FieldReader& fields) {
    std::vector<std::pair<std::string, std::int64_t>> values;
    for (const auto& item : fields.object_.items()) {
      fields.field(item.key(), values.emplace_back(item.key(), 0).second);
    }
    out = Configuration(std::move(values));
  });
}

void FieldReader::field(std::string_view name, MeasurePolicy& out) {
  std::string text;
  field(name, text);
  if (const auto policy = parse_policy(text)) {
    out = *policy;
  } else {
    fail(name, concat('"', text, "\" is no measure policy"));
  }
}

std::optional<std::size_t> FieldReader::spelled(std::string_view name,
                                                std::span<const std::string_view> names) {
  const Json* value = find(name, Json::value_t::string);
  if (value == nullptr) return std::nullopt;
  const auto& text = value->get_ref<const std::string&>();
  const auto found = std::ranges::find(names, text);
  if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  std::string all;
  for (const std::string_view one : names) all += concat(all.empty() ? "" : ", ", one);
  fail(name, concat('"', text, "\" is none of ", all));
  return std::nullopt;
}

void describe(FieldReader& fields, CountedKernel& kernel) {
  fields.field("kernel", kernel.name);
  std::vector<int> grid;
  fields.field("grid", grid);
  if (grid.size() == kernel.grid.size() && std::ranges::all_of(grid, [](int n) { return n > 0; })) {
    std::ranges::copy(grid, kernel.grid.begin());
  } else {
    fields.fail("grid", "three numbers above 0 expected");
  }
  fields.object("values", [&](FieldReader& values) {
    for (const Counter& counter : counters()) {
      if (!values.contains(counter.name)) continue;
      CounterValue& value = kernel.values.emplace_back(std::string(counter.name), std::nullopt);
      values.field(counter.name, value.value);
    }
  });
  fields.object("reasons", [&](FieldReader& reasons) {
    for (CounterValue& value : kernel.values) reasons.newer(value.name, value.reason);
  });
}

bool FieldReader::has(std::string_view name) const {
  const auto found = object_.find(name);
  return found != object_.end() && !found->is_null();
}

void FieldReader::fail(std::string_view name, std::string_view what) {
  set_defect(path_of(name), what);
}

std::string FieldReader::path_of(std::string_view name) const {
  return path_.empty() ? std::string(name) : concat(path_, '.', name);
}

const Json* FieldReader::find(std::string_view name) {
  if (defect_) return nullptr;
  const auto found = object_.find(name);
  if (found != object_.end()) return &*found;
  fail(name, "missing");
  return nullptr;
}

const Json* FieldReader::find(std::string_view name, Json::value_t type) {
  const Json* value = find(name);
  return value != nullptr && expect(*value, type, path_of(name)) ? value : nullptr;
}

bool FieldReader::expect(const Json& value, Json::value_t type, const std::string& path) {
  if (value.type() == type) return true;
  set_defect(path, concat(Json(type).type_name(), " expected, not ", described(value)));
  return false;
}

void FieldReader::set_defect(const std::string& path, std::string_view what) {
  if (!defect_) defect_ = concat(path, ": ", what);
}

Result<Json> parse_object(std::string_view json, std::string_view what) {
  std::string beyond;
  Json root = parse_value(json, &beyond);
  if (!beyond.empty()) return Error{ErrorCode::corrupt, concat(what, ": ", beyond)};
  if (!root.is_object()) return Error{ErrorCode::corrupt, concat(what, ": not a JSON object")};
  return root;
}

std::string dump(const Json& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

}  // namespace kernwright
