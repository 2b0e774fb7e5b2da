#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kernwright {

/// When a parameter takes effect: pasted into the source, or only seen by launch expressions.
/// Candidates that differ in run-time parameters alone share one compile.
enum class Binding { compile, runtime };

/// A named list of integer values.
struct Parameter {
  std::string name;
  std::vector<std::int64_t> values;
  Binding binding = Binding::compile;
};

/// One point of a parameter space: values in the space's order.
class Configuration {
 public:
  Configuration() = default;
  explicit Configuration(std::vector<std::pair<std::string, std::int64_t>> values)
      : values_(std::move(values)) {}

  const std::vector<std::pair<std::string, std::int64_t>>& values() const { return values_; }
  /// The value of `name`, which must exist.
  std::int64_t at(std::string_view name) const;
  bool contains(std::string_view name) const;

  /// "BM=128 BN=256 STAGES=4", the form in records, logs and the CLI.
  std::string text() const;

  friend bool operator==(const Configuration&, const Configuration&) = default;

 private:
  std::vector<std::pair<std::string, std::int64_t>> values_;
};

/// The product of parameters' value lists; points are numbered in row-major order (last parameter
/// fastest), so a point is an index and the space is never materialised.
class ParameterSpace {
 public:
  explicit ParameterSpace(std::vector<Parameter> parameters = {});

  const std::vector<Parameter>& parameters() const { return parameters_; }
  /// Number of points; 1 for no parameters.
  std::int64_t size() const { return size_; }
  Configuration at(std::int64_t index) const;
  /// The number of a point; nothing where it is none of the space, in names, order or values.
  std::optional<std::int64_t> index_of(const Configuration& configuration) const;

 private:
  std::vector<Parameter> parameters_;
  std::int64_t size_ = 1;
};

}  // namespace kernwright
