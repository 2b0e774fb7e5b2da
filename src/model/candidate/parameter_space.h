#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kernwright {

/// How a parameter is used: compiled into the kernel, or only in launch expressions. Candidates
/// that differ only in the latter share one compile. A parameter that makes a difference in a
/// `chain` alone, such as how much is read ahead there, keeps its default in a tuning; chains try
/// its values.
enum class Binding { compile, runtime, chain };

/// A named list of integer values.
struct Parameter {
  std::string name;
  std::vector<std::int64_t> values;
  Binding binding = Binding::compile;
};

/// One point of a parameter space: a value for each parameter, in the space's order.
class Configuration {
 public:
  Configuration() = default;
  explicit Configuration(std::vector<std::pair<std::string, std::int64_t>> values)
      : values_(std::move(values)) {}

  const std::vector<std::pair<std::string, std::int64_t>>& values() const { return values_; }
  /// Returns the value of `name`, which must exist.
  std::int64_t at(std::string_view name) const;
  bool contains(std::string_view name) const;

  /// Returns "BM=128 BN=256 STAGES=4", the form in records, logs and the CLI.
  std::string text() const;

  friend bool operator==(const Configuration&, const Configuration&) = default;

 private:
  std::vector<std::pair<std::string, std::int64_t>> values_;
};

/// The product of the parameters' lists of values. Points are numbered in row-major order (the last
/// parameter is the fastest), so a point is an index and the space takes no memory.
class ParameterSpace {
 public:
  explicit ParameterSpace(std::vector<Parameter> parameters = {});

  const std::vector<Parameter>& parameters() const { return parameters_; }
  /// Returns the number of points; 1 without parameters.
  std::int64_t size() const { return size_; }
  Configuration at(std::int64_t index) const;
  /// Returns the number of a configuration; nullopt if its names, order or values are not a point
  /// of the space.
  std::optional<std::int64_t> index_of(const Configuration& configuration) const;

 private:
  std::vector<Parameter> parameters_;
  std::int64_t size_ = 1;
};

}  // namespace kernwright
