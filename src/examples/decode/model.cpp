#include "model.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <unistd.h>
#include <vector>

namespace decode {
namespace {

/// Applies a bijection of 64-bit numbers that makes a counter look random (the finaliser of
/// SplitMix64).
std::uint64_t mixed(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

/// Returns the bytes of all weights on the host. The sizes of a config may be so large that no
/// integer has room for their product.
double weight_bytes(const ModelConfig& config) {
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  const double layer =
      real(config.hidden) * (real(config.qkv_columns()) + real(config.query_columns()) +
                             3 * real(config.intermediate) + 2);
  const double head = real(config.vocabulary) * real(config.hidden);
  // A layer takes memory even if its tensors are small.
  return 2 * (config.tied_head ? 1 : 2) * head +
         real(config.layers) * (2 * layer + static_cast<double>(sizeof(LayerWeights)));
}

double memory_bytes() {
  return static_cast<double>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<double>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

kw::Result<ModelWeights> read_model(const ModelConfig& config, const TensorSource& source) {
  std::optional<kw::Error> error;
  const auto append = [&](Tensor& to, const std::string& name,
                          const std::vector<std::int64_t>& shape) {
    if (error) return;
    kw::Result<Tensor> read = source(name + ".weight", shape);
    if (!read) {
      error = read.error();
    } else if (to.empty()) {
      to = std::move(*read);
    } else {
      to.insert(to.end(), read->begin(), read->end());
    }
  };
  if (const double bytes = weight_bytes(config), most = memory_bytes(); bytes > most) {
    char sizes[80];
    std::snprintf(sizes, sizeof sizes, "have %.3g bytes, and this host has %.3g", bytes, most);
    return kw::Error{kw::ErrorCode::invalid_argument,
                     "the weights of hidden_size " + std::to_string(config.hidden) +
                         ", num_hidden_layers " + std::to_string(config.layers) +
                         ", num_attention_heads " + std::to_string(config.heads) + ", head_dim " +
                         std::to_string(config.head_dim) + ", intermediate_size " +
                         std::to_string(config.intermediate) + ", vocab_size " +
                         std::to_string(config.vocabulary) + " " + sizes};
  }
  ModelWeights weights;
  append(weights.embedding, "model.embed_tokens", {config.vocabulary, config.hidden});
  for (std::int64_t i = 0; i < config.layers && !error; ++i) {
    LayerWeights& layer = weights.layers.emplace_back();
    const std::string at = "model.layers." + std::to_string(i) + ".";
    append(layer.input_norm, at + "input_layernorm", {config.hidden});
    append(layer.qkv, at + "self_attn.q_proj", {config.query_columns(), config.hidden});
    append(layer.qkv, at + "self_attn.k_proj", {config.kv_columns(), config.hidden});
    append(layer.qkv, at + "self_attn.v_proj", {config.kv_columns(), config.hidden});
    if (config.query_norm) {
      append(layer.query_norm, at + "self_attn.q_norm", {config.head_dim});
      append(layer.key_norm, at + "self_attn.k_norm", {config.head_dim});
    }
    append(layer.output, at + "self_attn.o_proj", {config.hidden, config.query_columns()});
    append(layer.inner_norm, at + "post_attention_layernorm", {config.hidden});
    append(layer.gate_up, at + "mlp.gate_proj", {config.intermediate, config.hidden});
    append(layer.gate_up, at + "mlp.up_proj", {config.intermediate, config.hidden});
    append(layer.down, at + "mlp.down_proj", {config.hidden, config.intermediate});
  }
  append(weights.final_norm, "model.norm", {config.hidden});
  if (!config.tied_head) append(weights.head, "lm_head", {config.vocabulary, config.hidden});
  if (error) return *error;
  return weights;
}

TensorSource random_source(std::uint64_t seed) {
  return [seed](const std::string& name,
                const std::vector<std::int64_t>& shape) -> kw::Result<Tensor> {
    std::uint64_t of_tensor = seed;
    for (const char letter : name)
      of_tensor = mixed(of_tensor ^ static_cast<unsigned char>(letter));
    if (shape.size() == 1) return random_tensor(shape[0], 0.5, 1.5, of_tensor);
    const double largest = std::sqrt(3.0 / static_cast<double>(shape[1]));
    return random_tensor(shape[0] * shape[1], -largest, largest, of_tensor);
  };
}

Tensor random_tensor(std::int64_t count, double low, double high, std::uint64_t seed) {
  constexpr std::int64_t kBlock = 4096;
  Tensor tensor(at(count));
  const double step = (high - low) / 16777216.0;
  parallel_for((count + kBlock - 1) / kBlock, 2 * kBlock, [&](std::int64_t block) {
    for (std::int64_t i = block * kBlock; i < std::min(count, (block + 1) * kBlock); ++i) {
      const std::uint64_t drawn = mixed(seed ^ mixed(static_cast<std::uint64_t>(i))) >> 40;
      tensor[at(i)] = to_bf16(static_cast<float>(low + step * static_cast<double>(drawn)));
    }
  });
  return tensor;
}

}  // namespace decode
