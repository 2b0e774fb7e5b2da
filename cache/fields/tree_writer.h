#pragma once

#include <concepts>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "model/candidate/parameter_space.h"
#include "model/result/measurement.h"

namespace kernwright {

/// Returns a value that `FieldWriter` can write as JSON, for output that says more or less than a
/// file does.
template <typename T>
nlohmann::ordered_json tree_of(const T& value);

/// Adds the fields of a described value to a JSON object.
struct TreeWriter {
  nlohmann::ordered_json& object;

  void field(std::string_view name, const auto& value) {
    object[std::string(name)] = tree_of(value);
  }
  void newer(std::string_view name, const auto& value) { field(name, value); }
};

template <typename T>
nlohmann::ordered_json tree_of(const T& value) {
  nlohmann::ordered_json tree;
  if constexpr (NamedEnum<T>) {
    tree = to_string(value);
  } else if constexpr (DescribedTo<T, TreeWriter>) {
    tree = nlohmann::ordered_json::object();
    TreeWriter writer{tree};
    describe(writer, value);
  } else if constexpr (std::same_as<T, MeasurePolicy>) {
    tree = value.text();
  } else if constexpr (std::same_as<T, Configuration>) {
    tree = nlohmann::ordered_json::object();
    for (const auto& [name, number] : value.values()) tree[name] = number;
  } else if constexpr (requires { value.has_value(); }) {
    if (value) tree = tree_of(*value);
  } else if constexpr (requires { value.begin(); } && !std::convertible_to<T, std::string_view>) {
    tree = nlohmann::ordered_json::array();
    for (const auto& item : value) tree.push_back(tree_of(item));
  } else {
    tree = value;
  }
  return tree;
}

}  // namespace kernwright
