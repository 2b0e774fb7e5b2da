#include "tests/tuner/templates/in_double/in_double.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace kernwright {

std::string flag(const Problem& problem, std::string_view name) {
  for (const auto& [key, value] : problem.flags()) {
    if (key == name) return value;
  }
  return {};
}

std::int64_t dim(const Problem& problem, std::string_view name) {
  for (const auto& [key, value] : problem.dims()) {
    if (key == name) return value;
  }
  return 0;
}

Expected divide_by_own_scales(Expected& y, std::size_t rows, std::size_t size, double end,
                              double least) {
  const std::size_t columns = y.value.size() / rows;
  const std::size_t groups = (columns + size - 1) / size;
  Expected scales{std::vector<double>(groups * rows), std::vector<double>(groups * rows)};
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t g = 0; g < groups; ++g) {
      const std::size_t first = r * columns + g * size;
      const std::size_t last = r * columns + std::min((g + 1) * size, columns);
      double most = 0;
      double most_terms = 0;
      for (std::size_t i = first; i < last; ++i) {
        most = std::max(most, std::fabs(y.value[i]));
        most_terms = std::max(most_terms, y.magnitude[i]);
      }
      const double scale = std::max(most / end, least);
      const double terms = std::max(most_terms / end, scale);
      scales.value[g * rows + r] = scale;
      scales.magnitude[g * rows + r] = terms;
      for (std::size_t i = first; i < last; ++i) {
        y.value[i] /= scale;
        y.magnitude[i] = (y.magnitude[i] + std::fabs(y.value[i]) * terms) / scale;
      }
    }
  }
  return scales;
}

void quantize(const Arrays& in, const Dims& d, const Problem& problem, double least, Outputs& out) {
  const std::string way = flag(problem, "quantize");
  const bool is_integer = flag(problem, "out") == "int8";
  const double end = is_integer ? 127 : 448;
  Expected& y = out.at("y");
  if (way == "row" || way == "block") {
    const std::size_t size = way == "row" ? d.at("columns") : 128;
    out["y_scale"] = divide_by_own_scales(y, d.at("rows"), size, end, least);
  }
  if (way != "tensor") return;
  const double scale = in.at("given_scale")[0];
  for (double& one : y.value) one = std::clamp(one / scale, is_integer ? -128.0 : -end, end);
  for (double& one : y.magnitude) one /= scale;
}

std::map<std::string, const InDouble*>& InDouble::known() {
  static std::map<std::string, const InDouble*> forms;
  return forms;
}

InDouble::InDouble(std::string operation, Compute compute, Takes takes)
    : compute_(std::move(compute)), takes_(std::move(takes)) {
  known().emplace(std::move(operation), this);
}

const InDouble* InDouble::of(const std::string& operation) {
  const auto found = known().find(operation);
  return found == known().end() ? nullptr : found->second;
}

}  // namespace kernwright
