#include "step.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace decode {
namespace {

using Dims = kw::Problem::Dims;
using Flags = kw::Problem::Flags;
using Arguments = std::vector<std::pair<std::string, kw::ChainArg>>;

/// Makes problems of one model and appends their kernels.
class Step {
 public:
  Step(const ModelConfig& config, const DecodeShape& shape, const StepMemory& memory)
      : config_(config), shape_(shape), memory_(memory) {}

  std::vector<StepKernel> kernels() {
    add("embedding",
        {{"tokens", shape_.batch}, {"hidden", config_.hidden}, {"vocabulary", config_.vocabulary}},
        {{"lengths", "advance"}},
        {{"tokens", memory_.tokens},
         {"table", memory_.embedding},
         {"lengths", memory_.old_lengths},
         {"x", memory_.x},
         {"lengths_out", memory_.lengths}});
    for (const LayerMemory& layer : memory_.layers) {
      attention(layer);
      feed_forward(layer);
    }
    normal_product(memory_.x, memory_.final_norm, {{"n", config_.vocabulary}}, {{"out", "fp32"}},
                   {{"b", memory_.head}, {"d", memory_.logits}});
    kernels_.push_back(
        {kw::Problem::make("argmax", {{"rows", shape_.batch}, {"columns", config_.vocabulary}},
                           {{"dtype", "fp32"}}),
         {{"x", memory_.logits}, {"index", memory_.tokens}}});
    return std::move(kernels_);
  }

 private:
  void add(const char* operation, Dims dims, const Flags& flags, Arguments arguments) {
    Flags all{{"dtype", "bf16"}};
    all.insert(all.end(), flags.begin(), flags.end());
    kernels_.push_back(
        {kw::Problem::make(operation, std::move(dims), std::move(all)), std::move(arguments)});
  }

  /// Adds a product of the normalised rows of x.
  void normal_product(const kw::ChainArg& x, const kw::ChainArg& norm_weight, Dims dims,
                      Flags flags, Arguments arguments) {
    dims.insert(dims.begin(), {"m", shape_.batch});
    dims.emplace_back("k", config_.hidden);
    flags.emplace_back("norm", "rms");
    arguments.insert(arguments.end(),
                     {{"a", x}, {"norm_weight", norm_weight}, {"eps", config_.norm_epsilon}});
    add("matmul", std::move(dims), flags, std::move(arguments));
  }

  /// Adds to the rows of x.
  void added_product(std::int64_t k, const kw::ChainArg& a, const kw::ChainArg& weight,
                     const kw::ChainArg& x, const kw::ChainArg& sum) {
    add("matmul", {{"m", shape_.batch}, {"n", config_.hidden}, {"k", k}}, {{"residual", "add"}},
        {{"a", a}, {"b", weight}, {"residual", x}, {"d", sum}});
  }

  /// Adds the kernels from x to between. Attention takes q, k and v as they come out of the
  /// product.
  void attention(const LayerMemory& layer) {
    normal_product(
        memory_.x, layer.input_norm, {{"n", config_.qkv_columns()}, {"n_kv", config_.kv_columns()}},
        {{"split", "qkv"}},
        {{"b", layer.qkv}, {"d", memory_.q}, {"d_k", memory_.k_new}, {"d_v", memory_.v_new}});

    Dims dims{{"batch", shape_.batch},        {"heads", config_.heads},
              {"kv_heads", config_.kv_heads}, {"q_len", 1},
              {"kv_len", shape_.capacity},    {"head_dim", config_.head_dim}};
    // Kernels are timed with lengths that differ as much as these do.
    if (shape_.all_tokens != shape_.batch * shape_.capacity) {
      dims.emplace_back("kv_total", shape_.all_tokens);
    }
    Arguments arguments{
        {"q", memory_.q},         {"k", layer.k_cache},
        {"v", layer.v_cache},     {"k_new", memory_.k_new},
        {"v_new", memory_.v_new}, {"cosine", memory_.cosine},
        {"sine", memory_.sine},   {"kv_lengths", memory_.lengths},
        {"o", memory_.attended},  {"scale", 1 / std::sqrt(static_cast<double>(config_.head_dim))}};
    if (config_.query_norm) {
      arguments.insert(arguments.end(), {{"q_norm", layer.query_norm},
                                         {"k_norm", layer.key_norm},
                                         {"eps", config_.norm_epsilon}});
    }
    if (shape_.paged) {
      dims.emplace_back("page", DecodeShape::kPage);
      arguments.emplace_back("page_table", memory_.page_table);
    }
    add("attention", std::move(dims),
        {{"lengths", "kv"},
         {"cache", shape_.paged ? "paged" : "contiguous"},
         {"append", config_.query_norm ? "norm_rope" : "rope"}},
        std::move(arguments));

    added_product(config_.query_columns(), memory_.attended, layer.output, memory_.x,
                  memory_.between);
  }

  /// Adds the kernels from between to x.
  void feed_forward(const LayerMemory& layer) {
    normal_product(memory_.between, layer.inner_norm, {{"n", config_.intermediate}},
                   {{"activation", "silu"}, {"gate", "stacked"}},
                   {{"b", layer.gate_up}, {"d", memory_.inner}});
    added_product(config_.intermediate, memory_.inner, layer.down, memory_.between, memory_.x);
  }

  const ModelConfig& config_;
  const DecodeShape& shape_;
  const StepMemory& memory_;
  std::vector<StepKernel> kernels_;
};

}  // namespace

std::vector<StepKernel> decode_step(const ModelConfig& config, const DecodeShape& shape,
                                    const StepMemory& memory) {
  return Step(config, shape, memory).kernels();
}

kw::Result<std::vector<kw::ChainArg>> arguments_in_order(const StepKernel& step,
                                                         const kw::Kernel& kernel) {
  std::vector<kw::ChainArg> ordered;
  for (const kw::ArgumentInfo& info : kernel.arguments()) {
    const auto found = std::find_if(step.arguments.begin(), step.arguments.end(),
                                    [&](const auto& given) { return given.first == info.name; });
    if (found != step.arguments.end()) {
      ordered.push_back(found->second);
    } else if (info.is_scalar) {
      break;
    } else {
      return kw::Error{kw::ErrorCode::invalid_argument,
                       step.problem.text() + ": the step has no argument " + info.name};
    }
  }
  if (ordered.size() != step.arguments.size()) {
    return kw::Error{kw::ErrorCode::invalid_argument,
                     step.problem.text() + ": takes " + std::to_string(ordered.size()) +
                         " of the " + std::to_string(step.arguments.size()) +
                         " arguments of the step"};
  }
  return ordered;
}

}  // namespace decode
