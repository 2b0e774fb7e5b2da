#include "tuner/cost/cost_model.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "tuner/cost/cost_models.h"

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

/// What a start saves that is hidden behind the end of the kernel before. Measured on an H200:
/// 0.2 to 1.3 us.
constexpr double kEarlyStartUs = 0.45;

/// The rate of the tensor cores for the narrowest input; where it is wider than 16 bits, that of
/// fp32, or of tf32 where the problem allows it. Whether a kernel can use them is its own affair.
double arithmetic_tflops(const Operation& operation, const Problem& normalized, const Scope& scope,
                         const DeviceProfile& profile) {
  const auto shapes = operation.tensor_shapes(normalized);
  std::int64_t narrowest = 8;
  if (shapes) {
    for (const TensorShape& shape : *shapes) {
      if (shape.role != TensorRole::out) narrowest = std::min(narrowest, byte_size(shape.dtype));
    }
  }
  if (narrowest == 1 && profile.sm_arch >= 89) return 2 * profile.dense_16bit_tflops;
  if (narrowest <= 2) return profile.dense_16bit_tflops;
  const auto tf32 = scope.find("tf32");
  return tf32 && tf32 == scope.find("tf32_allow") ? profile.dense_16bit_tflops / 2
                                                  : profile.fp32_tflops;
}

}  // namespace

double roofline_us(const Operation& operation, const Problem& normalized,
                   const DeviceProfile& profile) {
  const Scope scope = operation.scope(normalized);
  const auto flops = operation.flops.evaluate(scope);
  const auto bytes = operation.bytes.evaluate(scope);
  const double tflops = arithmetic_tflops(operation, normalized, scope, profile);
  const double arithmetic_us =
      flops && tflops > 0 ? static_cast<double>(flops.value()) / (tflops * 1e6) : 0;
  const double memory_us = bytes && profile.dram_gbps > 0
                               ? static_cast<double>(bytes.value()) / (profile.dram_gbps * 1e3)
                               : 0;
  return std::max(arithmetic_us, memory_us);
}

double predict_us(const Candidate& candidate, const DeviceProfile& profile) {
  const auto* const model =
      std::ranges::find(kModels, candidate.operation->name, &Model::operation);
  const double us = (model != std::end(kModels) ? model->predict : detail::predict_streaming_us)(
      candidate, profile);
  return candidate.plan.launches.front().programmatic ? us - kEarlyStartUs : us;
}

}  // namespace kernwright
