#pragma once

#include <algorithm>
#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/model_worklist.h"
#include "tests/results.h"

namespace kernwright {

// Fields of published configs, each with those that the list is made of and some that it is not.
// Llama 3 8B.
inline constexpr const char* kLlama = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": false,
  "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336,
  "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
  "rms_norm_eps": 1e-05, "rope_scaling": null, "tie_word_embeddings": false, "vocab_size": 128256
})";
// Mistral 7B v0.3.
inline constexpr const char* kMistral = R"({
  "model_type": "mistral", "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336,
  "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
  "sliding_window": null, "vocab_size": 32768
})";
// Qwen2 7B.
inline constexpr const char* kQwen2 = R"({
  "model_type": "qwen2", "hidden_act": "silu", "hidden_size": 3584, "intermediate_size": 18944,
  "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4,
  "use_sliding_window": false, "vocab_size": 152064
})";
// Qwen3 8B.
inline constexpr const char* kQwen3 = R"({
  "model_type": "qwen3", "attention_bias": false, "head_dim": 128, "hidden_act": "silu",
  "hidden_size": 4096, "intermediate_size": 12288, "num_attention_heads": 32,
  "num_hidden_layers": 36, "num_key_value_heads": 8, "vocab_size": 151936
})";
// Qwen3 30B A3B.
inline constexpr const char* kQwen3Moe = R"({
  "model_type": "qwen3_moe", "attention_bias": false, "decoder_sparse_step": 1, "head_dim": 128,
  "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 6144, "mlp_only_layers": [],
  "moe_intermediate_size": 768, "norm_topk_prob": true, "num_attention_heads": 32,
  "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48,
  "num_key_value_heads": 4, "vocab_size": 151936
})";
// Mixtral 8x7B.
inline constexpr const char* kMixtral = R"({
  "model_type": "mixtral", "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336,
  "num_attention_heads": 32, "num_experts_per_tok": 2, "num_hidden_layers": 32,
  "num_key_value_heads": 8, "num_local_experts": 8, "vocab_size": 32000
})";
// Gemma 2 9B.
inline constexpr const char* kGemma2 = R"({
  "model_type": "gemma2", "attention_bias": false, "attn_logit_softcapping": 50.0,
  "final_logit_softcapping": 30.0, "head_dim": 256, "hidden_act": "gelu_pytorch_tanh",
  "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 3584, "intermediate_size": 14336,
  "num_attention_heads": 16, "num_hidden_layers": 42, "num_key_value_heads": 8,
  "query_pre_attn_scalar": 256, "sliding_window": 4096, "vocab_size": 256000
})";
// Gemma 3 4B: transformers' defaults have the heads, the vocabulary and the activation.
inline constexpr const char* kGemma3 = R"({
  "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
  "mm_tokens_per_image": 256,
  "text_config": {
    "hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text",
    "num_hidden_layers": 34, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
    "sliding_window": 1024
  },
  "vision_config": {"hidden_size": 1152, "intermediate_size": 4304, "num_attention_heads": 16}
})";
// GLM-4 9B 0414.
inline constexpr const char* kGlm4 = R"({
  "model_type": "glm4", "attention_bias": true, "head_dim": 128, "hidden_act": "silu",
  "hidden_size": 4096, "intermediate_size": 13696, "num_attention_heads": 32,
  "num_hidden_layers": 40, "num_key_value_heads": 2, "partial_rotary_factor": 0.5,
  "vocab_size": 151552
})";
// DeepSeek-V2-Lite.
inline constexpr const char* kDeepseekV2 = R"({
  "model_type": "deepseek_v2", "attention_bias": false, "first_k_dense_replace": 1,
  "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 10944, "kv_lora_rank": 512,
  "moe_intermediate_size": 1408, "moe_layer_freq": 1, "n_group": 1, "n_routed_experts": 64,
  "n_shared_experts": 2, "num_attention_heads": 16, "num_experts_per_tok": 6,
  "num_hidden_layers": 27, "num_key_value_heads": 16, "q_lora_rank": null,
  "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 102400
})";
// DeepSeek-V3, but for the quantisation.
inline constexpr const char* kDeepseekV3 = R"({
  "model_type": "deepseek_v3", "attention_bias": false, "first_k_dense_replace": 3,
  "hidden_act": "silu", "hidden_size": 7168, "intermediate_size": 18432, "kv_lora_rank": 512,
  "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_group": 8, "n_routed_experts": 256,
  "n_shared_experts": 1, "num_attention_heads": 128, "num_experts_per_tok": 8,
  "num_hidden_layers": 61, "num_key_value_heads": 128, "num_nextn_predict_layers": 1,
  "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
  "vocab_size": 129280
})";
// gpt-oss-20b.
inline constexpr const char* kGptOss = R"({
  "model_type": "gpt_oss", "attention_bias": true, "head_dim": 64, "hidden_act": "silu",
  "hidden_size": 2880, "intermediate_size": 2880, "num_attention_heads": 64,
  "num_hidden_layers": 24, "num_key_value_heads": 8, "num_local_experts": 32,
  "quantization_config": {
    "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
                               "model.embed_tokens", "lm_head"],
    "quant_method": "mxfp4"
  },
  "sliding_window": 128, "swiglu_limit": 7.0, "vocab_size": 201088
})";
// GPT-2.
inline constexpr const char* kGpt2 = R"({
  "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2",
  "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024,
  "vocab_size": 50257
})";
// Phi-3 mini 4k.
inline constexpr const char* kPhi3 = R"({
  "model_type": "phi3", "hidden_act": "silu", "hidden_size": 3072, "intermediate_size": 8192,
  "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32,
  "rope_scaling": null, "sliding_window": 2047, "vocab_size": 32064
})";

/// More tokens than a step decodes sequences are of a prompt.
inline constexpr std::int64_t kMostSequences = 512;

class ModelWorklistTest : public ::testing::Test {
 protected:
  using Texts = std::vector<std::string>;
  using Sizes = std::vector<std::int64_t>;

  Result<ModelWorklist> make(std::string_view config, std::int64_t parts = 1, Sizes tokens = {16},
                             Sizes contexts = {}) const {
    return model_worklist(
        config, "config.json",
        {.tokens = std::move(tokens), .contexts = std::move(contexts), .tensor_parallel = parts},
        *catalog_);
  }
  std::string message(std::string_view config, std::int64_t parts = 1) const {
    const Result<ModelWorklist> list = make(config, parts);
    return list ? std::string("accepted") : list.error().message;
  }
  /// What it has of attention that does not append, in its order, without "attention ".
  Texts attention(std::string_view config, Sizes tokens, Sizes contexts, int parts = 1) const {
    Texts found = problems_of("attention", config, std::move(tokens), std::move(contexts), parts);
    std::erase_if(found, [](const std::string& text) { return has(text, " append="); });
    return found;
  }
  /// All that it has of an operation, without its name.
  Texts problems_of(std::string_view operation, std::string_view config, Sizes tokens,
                    Sizes contexts, int parts = 1) const {
    const ModelWorklist list = must(make(config, parts, std::move(tokens), std::move(contexts)));
    Texts found;
    for (const Problem& problem : list.problems) {
      if (problem.operation() != operation) continue;
      found.push_back(problem.text().substr(operation.size() + 1));
    }
    return found;
  }
  /// Which layers there are by the list: without a window, or with one of 512.
  struct Layers {
    bool full = false;
    bool windowed = false;
    bool operator==(const Layers&) const = default;
  };
  Layers layers(const std::string& config) const {
    Layers found;
    for (const std::string& text : attention(config, {1}, {1024})) {
      (has(text, " window=512 ") ? found.windowed : found.full) = true;
    }
    return found;
  }
  /// Whether a problem is one of those alone that a step of decoding has in few kernels.
  static bool is_fused(const Problem& problem) {
    const std::string text = problem.text();
    if (problem.operation() == "matmul") {
      return has(text, " norm=rms") || has(text, " residual=add");
    }
    return problem.operation() == "attention" ? has(text, " append=")
                                              : text.starts_with("argmax") && has(text, "=fp32");
  }
  /// The list for 16 tokens and no context, sorted, without what stands at both ends of every
  /// model, the embedding and the choice of a token, and without what is fused.
  Texts texts(std::string_view config, std::int64_t parts = 1) const {
    const ModelWorklist list = must(make(config, parts));
    Texts found;
    for (const Problem& problem : list.problems) {
      if (problem.operation() == "embedding" || problem.operation() == "argmax") continue;
      if (!is_fused(problem)) found.push_back(problem.text());
    }
    return sorted(std::move(found));
  }
  /// What is fused, in its order.
  Texts fused(std::string_view config, Sizes tokens = {16}, Sizes contexts = {},
              std::int64_t parts = 1) const {
    const ModelWorklist list = must(make(config, parts, std::move(tokens), std::move(contexts)));
    Texts found;
    for (const Problem& problem : list.problems) {
      if (is_fused(problem)) found.push_back(problem.text());
    }
    return found;
  }
  /// What holds for `list` from its first to its last note, for messages too.
  std::string notes(std::string_view config, std::int64_t parts = 1) const {
    const ModelWorklist list = must(make(config, parts));
    std::string all;
    for (const std::string& note : list.notes) all += note + "\n";
    return all;
  }
  static Texts sorted(Texts texts) {
    std::sort(texts.begin(), texts.end());
    return texts;
  }
  static bool has(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
  }
  static std::string replaced(std::string text, const std::string& from, const std::string& to) {
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  }
  static std::string with(const char* config, const std::string& fields) {
    return replaced(config, "{", "{" + fields + ", ");
  }

  std::shared_ptr<const Catalog> catalog_ = Catalog::load({}).value();
};

}  // namespace kernwright
