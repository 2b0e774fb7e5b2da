#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "tests/tuner/templates/in_double/in_double.h"
#include "tuner/data/element.h"
#include <kernwright/dtype.h>

namespace kernwright {
namespace {

/// x, or its sum with the residual as a tensor of its dtype holds it; the sum goes to `out`.
std::vector<double> with_residual(const Arrays& in, const Problem& problem, Outputs& out) {
  const DType dtype = parse_dtype(flag(problem, "dtype")).value();
  std::vector<double> x = in.at("x");
  if (!in.contains("r")) return x;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double r = in.at("r")[i];
    out["sum"].add(x[i] + r, std::fabs(x[i]) + std::fabs(r));
    std::array<char, 8> stored{};
    store_element(stored.data(), dtype, 0, static_cast<float>(x[i] + r));
    x[i] = load_element(stored.data(), dtype, 0);
  }
  return x;
}

Outputs rmsnorm_in_double(const Arrays& in, const Dims& d, const Problem& problem) {
  Outputs out;
  const std::vector<double> x = with_residual(in, problem, out);
  const std::size_t columns = d.at("columns");
  for (std::size_t r = 0; r < d.at("rows"); ++r) {
    double squares = 0;
    for (std::size_t c = 0; c < columns; ++c) squares += x[r * columns + c] * x[r * columns + c];
    const double scale = 1 / std::sqrt(squares / static_cast<double>(columns) + 1e-6);
    for (std::size_t c = 0; c < columns; ++c) {
      const double y = x[r * columns + c] * scale * (in.contains("w") ? in.at("w")[c] : 1);
      out["y"].add(y, std::fabs(y));
    }
  }
  quantize(in, d, problem, 0.009765625, out);
  return out;
}

Outputs layernorm_in_double(const Arrays& in, const Dims& d, const Problem& problem) {
  Outputs out;
  const std::vector<double> x = with_residual(in, problem, out);
  const std::size_t columns = d.at("columns");
  const auto count = static_cast<double>(columns);
  for (std::size_t r = 0; r < d.at("rows"); ++r) {
    const double* const row = x.data() + r * columns;
    double mean = 0;
    double terms = 0;
    for (std::size_t c = 0; c < columns; ++c) {
      mean += row[c] / count;
      terms += std::fabs(row[c]) / count;
    }
    double variance = 0;
    for (std::size_t c = 0; c < columns; ++c) variance += (row[c] - mean) * (row[c] - mean) / count;
    for (std::size_t c = 0; c < columns; ++c) {
      const double factor = (in.contains("w") ? in.at("w")[c] : 1) / std::sqrt(variance + 1e-5);
      const double shift = in.contains("b") ? in.at("b")[c] : 0;
      out["y"].add((row[c] - mean) * factor + shift,
                   (std::fabs(row[c]) + terms) * std::fabs(factor) + std::fabs(shift));
    }
  }
  quantize(in, d, problem, 0.009765625, out);
  return out;
}

/// With a causal mask the rows are taken for squares of scores, one after another.
Outputs softmax_in_double(const Arrays& in, const Dims& d, const Problem& problem) {
  const bool causal = flag(problem, "mask") == "causal";
  Outputs out;
  const std::size_t columns = d.at("columns");
  for (std::size_t r = 0; r < d.at("rows"); ++r) {
    const std::size_t seen = causal ? r % columns + 1 : columns;
    std::vector<double> v(seen);
    for (std::size_t c = 0; c < seen; ++c) {
      v[c] = in.at("x")[r * columns + c];
      if (in.contains("bias")) v[c] += in.at("bias")[r * columns + c];
    }
    const double most = *std::max_element(v.begin(), v.end());
    double sum = 0;
    for (const double one : v) sum += std::exp(one - most);
    for (std::size_t c = 0; c < columns; ++c) {
      const double y = c < seen ? std::exp(v[c] - most) / sum : 0;
      out["y"].add(y, c < seen ? y * (1 + std::fabs(v[c]) + std::fabs(most)) : 0);
    }
  }
  return out;
}

Outputs reduce_in_double(const Arrays& in, const Dims& d, const Problem& problem) {
  const std::string kind = flag(problem, "kind");
  const bool whole = flag(problem, "over") == "tensor";
  Outputs out;
  const auto& x = in.at("x");
  const std::size_t size = whole ? x.size() : d.at("columns");
  for (std::size_t first = 0; first < x.size(); first += size) {
    double sum = 0;
    double terms = 0;
    double most = x[first];
    for (std::size_t i = first; i < first + size; ++i) {
      const double term = kind == "sum_squares" ? x[i] * x[i] : x[i];
      sum += term;
      terms += std::fabs(term);
      most = std::max(most, x[i]);
    }
    const double count = kind == "mean" ? static_cast<double>(size) : 1;
    if (kind == "max") {
      out["y"].add(most, std::fabs(most));
    } else {
      out["y"].add(sum / count, terms / count);
    }
  }
  return out;
}

/// Sums of more terms in fp32 are off by more than the bound of the comparison.
bool is_short(const Problem& problem) { return dim(problem, "columns") <= 5003; }

const InDouble kRmsnormForm("rmsnorm", rmsnorm_in_double, [](const Problem& problem) {
  const std::string out = flag(problem, "out");
  return is_short(problem) &&
         (!flag(problem, "quantize").empty() || (out != "int8" && out != "fp8_e4m3"));
});
const InDouble kLayernormForm("layernorm", layernorm_in_double, is_short);
const InDouble kSoftmaxForm("softmax", softmax_in_double, is_short);
const InDouble kReduceForm("reduce", reduce_in_double, [](const Problem& problem) {
  const bool whole = flag(problem, "over") == "tensor";
  return (whole ? dim(problem, "rows") : 1) * dim(problem, "columns") <= 50'000;
});

}  // namespace
}  // namespace kernwright
