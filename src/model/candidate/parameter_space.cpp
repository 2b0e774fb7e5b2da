#include "model/candidate/parameter_space.h"

#include <algorithm>

namespace kernwright {
namespace {

auto find_value(const std::vector<std::pair<std::string, std::int64_t>>& values,
                std::string_view name) {
  return std::find_if(values.begin(), values.end(),
                      [&](const auto& entry) { return entry.first == name; });
}

}  // namespace

std::int64_t Configuration::at(std::string_view name) const {
  return find_value(values_, name)->second;
}

bool Configuration::contains(std::string_view name) const {
  return find_value(values_, name) != values_.end();
}

std::string Configuration::text() const {
  std::string text;
  for (const auto& [name, value] : values_) {
    if (!text.empty()) text += ' ';
    text += name;
    text += '=';
    text += std::to_string(value);
  }
  return text;
}

ParameterSpace::ParameterSpace(std::vector<Parameter> parameters)
    : parameters_(std::move(parameters)) {
  for (const Parameter& parameter : parameters_) {
    size_ *= static_cast<std::int64_t>(parameter.values.size());
  }
}

Configuration ParameterSpace::at(std::int64_t index) const {
  std::vector<std::pair<std::string, std::int64_t>> values(parameters_.size());
  for (std::size_t i = parameters_.size(); i-- > 0;) {
    const Parameter& parameter = parameters_[i];
    const auto count = static_cast<std::int64_t>(parameter.values.size());
    values[i] = {parameter.name, parameter.values[static_cast<std::size_t>(index % count)]};
    index /= count;
  }
  return Configuration(std::move(values));
}

std::optional<std::int64_t> ParameterSpace::index_of(const Configuration& configuration) const {
  const auto& values = configuration.values();
  if (values.size() != parameters_.size()) return std::nullopt;
  std::int64_t index = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Parameter& parameter = parameters_[i];
    const auto found =
        std::find(parameter.values.begin(), parameter.values.end(), values[i].second);
    if (values[i].first != parameter.name || found == parameter.values.end()) return std::nullopt;
    index = index * static_cast<std::int64_t>(parameter.values.size()) +
            (found - parameter.values.begin());
  }
  return index;
}

}  // namespace kernwright
