#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>

#include "tests/tuner/templates/in_double/in_double.h"
#include "tests/tuner/templates/in_double/quantized_weights.h"

namespace kernwright {
namespace {

double activate(std::string_view activation, double x) {
  if (activation == "gelu_tanh") {
    return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
  }
  if (activation == "gelu_erf") return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
  if (activation == "silu") return x / (1 + std::exp(-x));
  return x;
}

/// A sum of products, and the sum of their absolute values.
struct Sum {
  double value = 0;
  double terms = 0;
};

/// Returns the result of a product of `rows` rows from its sums. `unit` is the error that the
/// checks accept in a sum, relative to its terms.
template <typename SumOf>
Outputs finished(const Arrays& in, const Dims& d, const Problem& problem, std::size_t rows,
                 double unit, const SumOf& sum_of) {
  const std::size_t n = d.at("n"), n_kv = d.at("n_kv");
  const bool split = flag(problem, "split") == "qkv";
  const bool gated = flag(problem, "gate") == "stacked";
  const std::string activation = flag(problem, "activation");
  const double beta = flag(problem, "residual") == "scaled" ? 0.5 : 1;
  const double steepest = activation.empty() ? 1 : 1.13;
  Outputs out;
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      const Sum sum = sum_of(i, j);
      if (gated) {
        const Sum up = sum_of(i, n + j);
        const double gate = activate(activation, sum.value);
        out["d"].add(gate * up.value,
                     std::fabs(gate) * up.terms +
                         steepest * sum.terms * (std::fabs(up.value) + unit * up.terms));
        continue;
      }
      const double shift = in.contains("bias") ? in.at("bias")[j] : 0;
      const double added = in.contains("residual") ? in.at("residual")[i * n + j] : 0;
      const bool in_v = split && j >= n - n_kv, in_k = split && j >= n - 2 * n_kv && !in_v;
      out[in_v   ? "d_v"
          : in_k ? "d_k"
                 : "d"]
          .add(activate(activation, sum.value + shift) + beta * added,
               steepest * (sum.terms + std::fabs(shift)) + beta * std::fabs(added));
    }
  }
  return out;
}

Outputs matmul_in_double(const Arrays& in, const Dims& d, const Problem& problem) {
  const auto& a = in.at("a");
  const auto& b = in.at("b");
  const std::size_t m = d.at("m"), n = d.at("n"), k = d.at("k");
  const bool kn = flag(problem, "b_layout") == "kn";
  const bool gated = flag(problem, "gate") == "stacked";
  const double alpha = flag(problem, "scaling") == "alpha" ? 0.5 : 1;
  const bool of_rows = flag(problem, "scaling") == "row";
  const bool tf32 = flag(problem, "tf32") == "allow";
  const double root = std::sqrt(static_cast<double>(k));
  const double unit = 8 * root * (tf32 ? 0x1p-24 : 0x1p-22);
  const std::size_t rows_b = gated ? 2 * n : n;
  // Returns the sum for product i / m of a batch.
  const auto sum_of = [&](std::size_t i, std::size_t j) {
    const double* const own_b = b.data() + i / m * k * rows_b;
    const double scale =
        of_rows ? in.at("scale_a")[i] * in.at("scale_b")[i / m * rows_b + j] : alpha;
    Sum sum;
    for (std::size_t l = 0; l < k; ++l) {
      const double product = scale * a[i * k + l] * (kn ? own_b[l * rows_b + j] : own_b[j * k + l]);
      sum.value += product;
      sum.terms += std::fabs(product);
    }
    if (tf32) {  // each product may be cut off by 2^-9 of it, in tensor cores that add as ever
      const double cut =
          std::min(0x1p-9 * sum.terms, 0x1p-8 / root * sum.terms + 0x1p-9 * std::fabs(sum.value));
      sum.terms = 4 * sum.terms + cut / unit;
    }
    return sum;
  };
  return finished(in, d, problem, d.at("batch") * m, unit, sum_of);
}

Outputs quantized_matmul_in_double(const Arrays& in, const Dims& d, const Problem& problem) {
  const QuantizedWeights weights(in, d, problem);
  const std::size_t k = d.at("k");
  const double alpha = flag(problem, "scaling") == "alpha" ? 0.5 : 1;
  const double rounding = flag(problem, "dtype") == "bf16" ? 0x1p-7 : 0x1p-10;  // of weights
  const double unit = 8 * std::sqrt(static_cast<double>(k)) * 0x1p-22 + rounding;
  const auto sum_of = [&](std::size_t i, std::size_t j) {
    Sum sum;
    for (std::size_t l = 0; l < k; ++l) {
      const double product = alpha * in.at("a")[i * k + l] * weights.at(j, l);
      sum.value += product;
      sum.terms += std::fabs(product);
    }
    return sum;
  };
  return finished(in, d, problem, d.at("m"), unit, sum_of);
}

const InDouble kMatmulForm("matmul", matmul_in_double, [](const Problem& problem) {
  const std::string scaling = flag(problem, "scaling");
  return dim(problem, "k") <= 1000 && flag(problem, "norm").empty() && scaling != "block" &&
         flag(problem, "dtype") != "fp8_e4m3" && flag(problem, "out") != "fp8_e4m3";
});

const InDouble kQuantizedMatmulForm("quantized_matmul", quantized_matmul_in_double);

/// Calls `visit(group, row)` for the places of the rows of all groups.
template <typename Visit>
void each_grouped_row(const Arrays& in, std::size_t groups, std::size_t room, const Visit& visit) {
  const bool masked = in.contains("counts");
  std::size_t first = 0;
  for (std::size_t group = 0; group < groups; ++group) {
    const auto given = static_cast<std::size_t>(in.at(masked ? "counts" : "ends")[group]);
    if (masked) first = group * room;
    const std::size_t end = masked ? first + given : given;
    for (; first < end; ++first) visit(group, first);
  }
}

/// An element of a product of experts, by the sums of a row of weights and of the one that it
/// opens, if it is a gate; `unit` is the error of a sum relative to its terms.
struct OfExperts {
  double value, magnitude;
};
OfExperts of_experts(const Problem& problem, const Sum& sum, Sum up, double unit) {
  constexpr double kLimit = 1.5, kGateAlpha = 0.75;  // the checked scalars
  const std::string activation = flag(problem, "activation");
  double gate = activate(activation, sum.value);
  if (activation == "swiglu_oai") {
    const double least = std::min(sum.value, kLimit);
    gate = least / (1 + std::exp(-kGateAlpha * least));
    up = {std::clamp(up.value, -kLimit, kLimit) + 1, up.terms + 1};
  }
  const double steepest = activation.empty() ? 1 : 1.13;
  return {gate * up.value, std::fabs(gate) * up.terms +
                               steepest * sum.terms * (std::fabs(up.value) + unit * up.terms)};
}

/// A place that belongs to no group keeps its value.
Outputs grouped_matmul_in_double(const Arrays& in, const Dims& d, const Problem& problem) {
  const std::size_t n = d.at("n"), k = d.at("k");
  const std::string gate = flag(problem, "gate");
  const bool gated = !gate.empty(), interleaves = gate == "interleaved";
  const bool is_kn = flag(problem, "b_layout") == "kn";
  const std::size_t rows_of_b = gated ? 2 * n : n;
  const double unit = 8 * std::sqrt(static_cast<double>(k)) * 0x1p-22;
  Expected out;
  for (const double kept : in.at("d")) out.add(kept, 0);
  each_grouped_row(in, d.at("groups"), d.at("room"), [&](std::size_t group, std::size_t place) {
    const auto of_a =
        in.contains("row_of") ? static_cast<std::size_t>(in.at("row_of")[place]) : place;
    const auto sum_of = [&](std::size_t row) {
      Sum sum;
      if (in.contains("bias")) {
        sum.value = in.at("bias")[group * rows_of_b + row];
        sum.terms = std::fabs(sum.value);
      }
      for (std::size_t l = 0; l < k; ++l) {
        const std::size_t of_b = is_kn ? l * rows_of_b + row : row * k + l;
        const double product = in.at("a")[of_a * k + l] * in.at("b")[group * rows_of_b * k + of_b];
        sum.value += product;
        sum.terms += std::fabs(product);
      }
      return sum;
    };
    for (std::size_t j = 0; j < n; ++j) {
      const Sum sum = sum_of(interleaves ? 2 * j : j);
      const Sum up = gated ? sum_of(interleaves ? 2 * j + 1 : n + j) : Sum{1, 0};
      const OfExperts found = of_experts(problem, sum, up, unit);
      out.value[place * n + j] = found.value;
      out.magnitude[place * n + j] = found.magnitude;
    }
  });
  return {{"d", std::move(out)}};
}

const InDouble kGroupedMatmulForm("grouped_matmul", grouped_matmul_in_double,
                                  [](const Problem& problem) {
                                    return flag(problem, "dtype") != "fp8_e4m3";
                                  });

/// A place that belongs to no expert keeps its value.
Outputs grouped_quantized_matmul_in_double(const Arrays& in, const Dims& d,
                                           const Problem& problem) {
  const std::size_t n = d.at("n"), k = d.at("k");
  const bool gated = flag(problem, "gate") == "stacked";
  const double rounding = flag(problem, "dtype") == "bf16" ? 0x1p-7 : 0x1p-10;  // of weights
  const double unit = 8 * std::sqrt(static_cast<double>(k)) * 0x1p-22 + rounding;
  Expected out;
  for (const double kept : in.at("d")) out.add(kept, 0);
  each_grouped_row(in, d.at("experts"), d.at("room"), [&](std::size_t expert, std::size_t row) {
    const QuantizedWeights weights(in, d, problem, expert);
    const auto of_a = in.contains("row_of") ? static_cast<std::size_t>(in.at("row_of")[row]) : row;
    const auto sum_of = [&](std::size_t j) {
      Sum sum;
      if (in.contains("bias")) {
        sum.value = in.at("bias")[expert * weights.rows() + j];
        sum.terms = std::fabs(sum.value);
      }
      for (std::size_t l = 0; l < k; ++l) {
        const double product = in.at("a")[of_a * k + l] * weights.at(j, l);
        sum.value += product;
        sum.terms += std::fabs(product);
      }
      return sum;
    };
    const double factor = in.contains("row_scale") ? in.at("row_scale")[row] : 1;
    for (std::size_t j = 0; j < n; ++j) {
      const Sum up = gated ? sum_of(n + j) : Sum{1, 0};
      const OfExperts found = of_experts(problem, sum_of(j), up, unit);
      out.value[row * n + j] = factor * found.value;
      out.magnitude[row * n + j] = factor * found.magnitude;
    }
  });
  return {{"d", std::move(out)}};
}

const InDouble kGroupedQuantizedMatmulForm("grouped_quantized_matmul",
                                           grouped_quantized_matmul_in_double);

}  // namespace
}  // namespace kernwright
