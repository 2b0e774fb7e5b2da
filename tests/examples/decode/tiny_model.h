#pragma once

#include <cstdint>

#include "examples/decode/config.h"

namespace decode {

/// A model whose steps take no time on the host.
inline ModelConfig tiny_model(bool qwen3, std::int64_t layers = 3) {
  ModelConfig config;
  config.model_type = qwen3 ? "qwen3" : "llama";
  config.hidden = 64;
  config.layers = layers;
  config.heads = 6;
  config.kv_heads = 2;
  config.head_dim = 16;
  config.intermediate = 96;
  config.vocabulary = 100;
  config.positions = 4096;
  config.norm_epsilon = 1e-5;
  config.rope_theta = 10000;
  config.query_norm = qwen3;
  config.tied_head = qwen3;
  return config;
}

}  // namespace decode
