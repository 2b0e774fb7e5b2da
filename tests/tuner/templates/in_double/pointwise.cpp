#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "tests/tuner/templates/in_double/in_double.h"

namespace kernwright {
namespace {

/// An activation's value and magnitude.
std::pair<double, double> activated(std::string_view activation, double x) {
  if (activation == "none") return {x, std::fabs(x)};
  if (activation == "relu") return {std::max(x, 0.0), std::max(x, 0.0)};
  if (activation == "relu_squared") return {std::max(x, 0.0) * x, std::max(x, 0.0) * x};
  if (activation == "gelu_erf") {
    const double e = std::erf(x / std::numbers::sqrt2);
    return {x / 2 * (1 + e), std::fabs(x) / 2 * (1 + std::fabs(e))};
  }
  const double u = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  const double exponent = activation == "silu" ? x : 2 * u;
  const double y = x / (1 + std::exp(-exponent));
  return {y, std::fabs(y) * (1 + std::fabs(exponent))};
}

Outputs gated_activation_in_double(const Arrays& in, const Dims& d, const Problem& problem) {
  const std::string given = flag(problem, "activation");
  const bool saturates = flag(problem, "out") == "fp8_e4m3" && flag(problem, "quantize").empty();
  Outputs out;
  for (std::size_t r = 0; r < d.at("rows"); ++r) {
    for (std::size_t c = 0; c < d.at("columns"); ++c) {
      const std::size_t i = r * d.at("columns") + c;
      const std::size_t packed = 2 * r * d.at("columns") + c;
      const bool is_packed = in.contains("x");
      const auto [y, terms] = activated(given.empty() ? "silu" : given,
                                        is_packed ? in.at("x")[packed] : in.at("gate")[i]);
      const double up = is_packed ? in.at("x")[packed + d.at("columns")] : in.at("up")[i];
      out["y"].add(saturates ? std::clamp(y * up, -448.0, 448.0) : y * up, terms * std::fabs(up));
    }
  }
  quantize(in, d, problem, 0.0078125, out);
  return out;
}

Outputs bias_activation_in_double(const Arrays& in, const Dims& d, const Problem& problem) {
  const std::string given = flag(problem, "activation");
  Outputs out;
  for (std::size_t i = 0; i < in.at("x").size(); ++i) {
    const double sum = in.at("x")[i] + in.at("bias")[i % d.at("columns")];
    const auto [y, terms] = activated(given.empty() ? "gelu_tanh" : given, sum);
    const double added = in.contains("residual") ? in.at("residual")[i] : 0;
    out["y"].add(y + added, terms + std::fabs(added));
  }
  return out;
}

Outputs rope_in_double(const Arrays& in, const Dims& d, const Problem& problem) {
  const std::size_t half = d.at("head_dim") / 2;
  const bool neighbours = flag(problem, "pairs") == "neighbours";
  Outputs out;
  for (const char* name : {"q", "k"}) {
    const std::size_t heads = d.at(name == std::string_view("q") ? "heads" : "kv_heads");
    for (std::size_t row = 0; row < d.at("tokens") * heads; ++row) {
      const double* const head = in.at(name).data() + row * 2 * half;
      for (std::size_t i = 0; i < 2 * half; ++i) {
        const std::size_t pair = neighbours ? i / 2 : i % half;
        const bool is_first = neighbours ? i % 2 == 0 : i < half;
        const double x = head[neighbours ? 2 * pair : pair];
        const double y = head[neighbours ? 2 * pair + 1 : pair + half];
        const double cosine = in.at("cosine")[row / heads * half + pair];
        const double sine = in.at("sine")[row / heads * half + pair];
        const double own = (is_first ? x : y) * cosine;
        const double other = (is_first ? -y : x) * sine;
        out[std::string(name) + "_out"].add(own + other, std::fabs(own) + std::fabs(other));
      }
    }
  }
  if (in.contains("v")) {
    for (const double v : in.at("v")) out["v_out"].add(v, std::fabs(v));
  }
  return out;
}

/// Computes the formulas a*x+y, silu(x)*y and max(x,y)/(1+exp(-z)).
Outputs elementwise_in_double(const Arrays& in, const Dims& d, const Problem& problem) {
  const std::string formula = flag(problem, "formula");
  Outputs out;
  for (std::size_t i = 0; i < d.at("n"); ++i) {
    const double x = in.at("x")[i];
    const double y = in.at("y")[i];
    if (formula == "a*x+y") {
      out["r"].add(0.75 * x + y, std::fabs(0.75 * x) + std::fabs(0.75 * x + y));
    } else if (formula == "silu(x)*y") {
      const auto [s, terms] = activated("silu", x);
      out["r"].add(s * y, terms * std::fabs(y) + std::fabs(s * y));
    } else {
      const double z = in.at("z")[i];
      const double e = std::exp(-z);
      const double quotient = std::max(x, y) / (1 + e);
      const double below = e * (1 + std::fabs(z)) + 1 + e;
      out["r"].add(quotient, std::fabs(quotient) * (below / (1 + e) + 1));
    }
  }
  return out;
}

Outputs vector_add_in_double(const Arrays& in, const Dims& d, const Problem&) {
  Outputs out;
  for (std::size_t i = 0; i < d.at("n"); ++i) {
    const double a = in.at("a")[i];
    const double b = in.at("b")[i];
    out["c"].add(a + b, std::fabs(a) + std::fabs(b));
  }
  return out;
}

const InDouble kGatedActivationForm("gated_activation", gated_activation_in_double);
const InDouble kBiasActivationForm("bias_activation", bias_activation_in_double);
const InDouble kRopeForm("rope", rope_in_double);
const InDouble kVectorAddForm("vector_add", vector_add_in_double);
const InDouble kElementwiseForm("elementwise", elementwise_in_double, [](const Problem& problem) {
  const std::string formula = flag(problem, "formula");
  return formula == "a*x+y" || formula == "silu(x)*y" || formula == "max(x,y)/(1+exp(-z))";
});

}  // namespace
}  // namespace kernwright
