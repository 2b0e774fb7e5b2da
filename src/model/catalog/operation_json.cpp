#include "model/catalog/operation_json.h"

#include <optional>
#include <string>
#include <vector>

#include "support/text.h"

namespace kernwright {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::string> names_of(const std::vector<DType>& dtypes) {
  std::vector<std::string> names;
  for (const DType dtype : dtypes) names.emplace_back(to_string(dtype));
  return names;
}

std::string dtype_text(const Tensor& tensor) {
  return tensor.dtype_variable.empty() ? std::string(to_string(tensor.fixed_dtype))
                                       : tensor.dtype_variable;
}

std::string role_text(TensorRole role) {
  return role == TensorRole::in ? "in" : role == TensorRole::out ? "out" : "inout";
}

Json optional_text(const std::optional<Expression>& expression) {
  return expression ? Json(expression->text()) : Json();
}

}  // namespace

Json to_json(const Operation& operation) {
  Json json = {{"operation", operation.name}, {"description", operation.description}};
  json["dims"] = Json::array();
  for (const Dim& dim : operation.dims) {
    json["dims"].push_back({{"name", dim.name},
                            {"bind", dim.match == DimMatch::exact ? "exact" : "bucket"},
                            {"default", optional_text(dim.default_size)}});
  }
  json["dtypes"] = Json::array();
  for (const TypeVariable& variable : operation.type_variables) {
    const std::string& other = variable.default_variable;
    json["dtypes"].push_back({{"name", variable.name},
                              {"values", names_of(variable.dtypes)},
                              {"default", other.empty() ? Json() : Json(other)}});
  }
  json["flags"] = Json::array();
  for (const Flag& flag : operation.flags) {
    Json row = {{"name", flag.name}, {"values", flag.values}};
    if (flag.is_formula()) {
      row["variables"] = flag.variables;
    } else {
      row["default"] = flag.values[static_cast<std::size_t>(flag.default_index)];
    }
    if (flag.is_function()) row["function"] = flag.declaration;
    json["flags"].push_back(std::move(row));
  }
  json["requires"] = Json::array();
  for (const Rule& rule : operation.requirements) {
    json["requires"].push_back({{"rule", rule.expression.text()}, {"why", rule.why}});
  }
  json["tensors"] = Json::array();
  for (const Tensor& tensor : operation.tensors) {
    Json extent = Json::array();
    for (const Expression& size : tensor.extent) extent.push_back(size.text());
    Json pitches = Json::array();
    for (const Expression& pitch : tensor.pitches) pitches.push_back(pitch.text());
    json["tensors"].push_back({{"name", tensor.name},
                               {"role", role_text(tensor.role)},
                               {"dtype", dtype_text(tensor)},
                               {"extent", std::move(extent)},
                               {"pitches", std::move(pitches)},
                               {"alignment", tensor.alignment},
                               {"when", optional_text(tensor.when)}});
  }
  json["scalars"] = Json::array();
  for (const Scalar& scalar : operation.scalars) {
    json["scalars"].push_back(
        {{"name", scalar.name},
         {"dtype", to_string(scalar.dtype)},
         {"default", scalar.default_formula ? Json(scalar.default_formula->text())
                                            : Json(scalar.default_value)},
         {"when", optional_text(scalar.when)}});
  }
  const CallForm& call = operation.call;
  Json renamed = Json::object();
  for (const auto& [name, other] : call.names) renamed[name] = other;
  Json flags = Json::object();
  for (const auto& [name, other] : call.flags) flags[name] = other;
  Json swapped;
  if (call.swapped) {
    swapped = {{"when", call.swapped->when.text()}, {"tensors", call.swapped->tensors}};
  }
  json["call"] = {{"leading", call.leading},   {"swapped", std::move(swapped)},
                  {"options", call.options},   {"names", std::move(renamed)},
                  {"flags", std::move(flags)}, {"made", call.made}};
  json["unfused"] = !operation.unfused.empty();
  json["example"] = operation.example.text();
  return json;
}

}  // namespace kernwright
