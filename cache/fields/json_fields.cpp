#include "cache/fields/json_fields.h"

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

void FieldReader::read(std::string_view name, std::string& out) {
  if (const Json* value = find(name, Json::value_t::string)) out = value->get<std::string>();
}

void FieldReader::read(std::string_view name, bool& out) {
  if (const Json* value = find(name, Json::value_t::boolean)) out = value->get<bool>();
}

void FieldReader::read(std::string_view name, double& out) {
  const Json* value = find(name);
  if (value == nullptr) return;
  if (!value->is_number()) return fail(name, "a number expected, not " + described(*value));
  out = value->get<double>();
}

void FieldReader::read(std::string_view name, std::int64_t& out) {
  const Json* value = find(name);
  if (value == nullptr) return;
  if (!fits_64_bits(*value))
    return fail(name, "a 64-bit integer expected, not " + described(*value));
  out = value->get<std::int64_t>();
}

void FieldReader::read(std::string_view name, std::uint64_t& out) {
  const Json* value = find(name);
  if (value == nullptr) return;
  if (!value->is_number_unsigned()) {
    return fail(name, "an unsigned 64-bit integer expected, not " + described(*value));
  }
  out = value->get<std::uint64_t>();
}

void FieldReader::read(std::string_view name, int& out) {
  std::int64_t wide = out;
  read(name, wide);
  if (!std::in_range<int>(wide)) return fail(name, concat(wide, " is no 32-bit integer"));
  out = static_cast<int>(wide);
}

void FieldReader::read(std::string_view name, std::vector<double>& out) {
  const Json* array = find(name, Json::value_t::array);
  for (std::size_t i = 0; array != nullptr && i < array->size(); ++i) {
    const Json& value = (*array)[i];
    if (!value.is_number()) {
      return fail(concat(name, '[', i, ']'), "a number expected, not " + described(value));
    }
    out.push_back(value.get<double>());
  }
}

void FieldReader::read(std::string_view name, std::vector<int>& out) {
  const Json* array = find(name, Json::value_t::array);
  for (std::size_t i = 0; array != nullptr && i < array->size(); ++i) {
    const Json& value = (*array)[i];
    if (!fits_64_bits(value) || !std::in_range<int>(value.get<std::int64_t>())) {
      return fail(concat(name, '[', i, ']'), "a 32-bit integer expected, not " + described(value));
    }
    out.push_back(value.get<int>());
  }
}

void FieldReader::read(std::string_view name, std::vector<std::int64_t>& out) {
  const Json* array = find(name, Json::value_t::array);
  for (std::size_t i = 0; array != nullptr && i < array->size(); ++i) {
    const Json& value = (*array)[i];
    if (!fits_64_bits(value)) {
      return fail(concat(name, '[', i, ']'), "a 64-bit integer expected, not " + described(value));
    }
    out.push_back(value.get<std::int64_t>());
  }
}

void FieldReader::read(std::string_view name, std::vector<std::string>& out) {
  const Json* array = find(name, Json::value_t::array);
  for (std::size_t i = 0; array != nullptr && i < array->size(); ++i) {
    const std::string path = path_of(concat(name, '[', i, ']'));
    if (!expect((*array)[i], Json::value_t::string, path)) return;
    out.push_back((*array)[i].get<std::string>());
  }
}

void FieldReader::read(std::string_view name, Resources& out) {
  object(name, [&](FieldReader& fields) {
    fields.read("registers", out.registers);
    fields.read("spill_store_bytes", out.spill_store_bytes);
    fields.read("spill_load_bytes", out.spill_load_bytes);
    fields.read("stack_bytes", out.stack_bytes);
    fields.read("static_smem_bytes", out.static_smem_bytes);
    fields.read("barriers", out.barriers);
  });
}

void FieldReader::read(std::string_view name, Configuration& out) {
  object(name, [&](FieldReader& fields) {
    std::vector<std::pair<std::string, std::int64_t>> values;
    for (const auto& item : fields.object_.items()) {
      fields.read(item.key(), values.emplace_back(item.key(), 0).second);
    }
    out = Configuration(std::move(values));
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
