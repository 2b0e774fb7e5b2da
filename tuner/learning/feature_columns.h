#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace kernwright {

/// Named numbers of candidates, gathered one candidate after the other.
class FeatureColumns {
 public:
  void begin_row();
  /// Sets a feature of the row begun last.
  void set(std::string_view name, double value);
  /// Equally long rows, with NaN for what was not set.
  std::vector<std::vector<double>> take();

 private:
  std::map<std::string, std::size_t, std::less<>> columns_;
  std::vector<std::vector<double>> rows_;
};

}  // namespace kernwright
