#include "tuner/cost_model.h"

#include <algorithm>
#include <string_view>

#include "tuner/cost_models.h"

namespace kernwright {
namespace {

struct Model {
  std::string_view operation;
  double (*predict)(const Candidate&, const DeviceProfile&);
};

/// An operation without a row of its own is taken for streaming work.
constexpr Model kModels[] = {
    {"matmul", detail::predict_matmul_us},  {"rmsnorm", detail::predict_rows_us},
    {"layernorm", detail::predict_rows_us}, {"softmax", detail::predict_rows_us},
    {"reduce", detail::predict_rows_us},    {"vector_add", detail::predict_streaming_us},
};

}  // namespace

double roofline_us(const Operation& operation, const Problem& normalized,
                   const DeviceProfile& profile) {
  const Scope scope = operation.scope(normalized);
  const auto flops = operation.flops.evaluate(scope);
  const auto bytes = operation.bytes.evaluate(scope);
  // Tensor cores are there for 16-bit inputs; whether a kernel can use them is its own affair.
  const bool narrow = std::any_of(
      operation.type_variables.begin(), operation.type_variables.end(),
      [&](const TypeVariable& v) { return byte_size(operation.dtype(normalized, v.name)) == 2; });
  const double tflops = narrow ? profile.dense_16bit_tflops : profile.fp32_tflops;
  const double arithmetic_us =
      flops && tflops > 0 ? static_cast<double>(flops.value()) / (tflops * 1e6) : 0;
  const double memory_us = bytes && profile.dram_gbps > 0
                               ? static_cast<double>(bytes.value()) / (profile.dram_gbps * 1e3)
                               : 0;
  return std::max(arithmetic_us, memory_us);
}

double predict_us(const Candidate& candidate, const DeviceProfile& profile) {
  for (const Model& model : kModels) {
    if (model.operation == candidate.operation->name) return model.predict(candidate, profile);
  }
  return detail::predict_streaming_us(candidate, profile);
}

}  // namespace kernwright
