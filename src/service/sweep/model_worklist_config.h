#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <kernwright/result.h>

namespace kernwright {

/// Attention whose queries, keys and values come out of low-rank products (DeepSeek's MLA). Heads
/// of q and k have `plain_dim` columns as they are and `rotated_dim` that are rotated.
struct LatentAttention {
  std::int64_t query_rank = 0;  ///< 0: q is one product
  std::int64_t key_value_rank = 0;
  std::int64_t plain_dim = 0;
  std::int64_t rotated_dim = 0;
  std::int64_t value_dim = 0;
};

/// Which columns of a head are rotated by the position: none, or all in pairs as `rope` names them.
/// `apart`: some columns between others.
enum class Rotation { none, halves, neighbours, apart };

/// How the weights of the layers' products are kept. Of `fp8` weights and activations have one
/// scale a tensor each, which are known before the launch.
enum class Weights { plain, fp8, quantized };

/// What the values of a router are computed from: weights alone, with a bias, or in fp32.
enum class Router { plain, biased, precise };

/// A decoder-only transformer as its `config.json` describes it. Sizes are of the whole model.
struct ModelConfig {
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::optional<LatentAttention> latent;  ///< in place of `kv_heads` and `head_dim`
  bool qkv_bias = false;                  ///< of a latent attention, of both `_a` products
  bool output_bias = false;
  bool query_norm = false;  ///< each head of q and k is normalised
  Rotation rotation = Rotation::halves;

  bool causal = true;       ///< a query sees no key behind it
  bool full_layers = true;  ///< some layers have no window
  std::int64_t window = 0;  ///< keys that a query of other layers sees, with its own; 0: no others
  bool softcap = false;     ///< of the logits of attention
  bool sinks = false;       ///< each head has one more logit, without a value

  std::int64_t intermediate = 0;         ///< of layers without experts; 0: there are none
  std::int64_t shared_intermediate = 0;  ///< of what all tokens take beside experts; 0: nothing
  std::int64_t experts = 0;
  std::int64_t experts_of_token = 0;     ///< 0: not known
  std::int64_t expert_intermediate = 0;  ///< 0: of experts that no operation computes
  Router router = Router::plain;
  bool gated = true;
  bool mlp_bias = false;
  std::string activation;  ///< as transformers spells it

  bool layer_norm = false;    ///< layernorm with a bias, not rmsnorm
  bool result_norms = false;  ///< what is added to the sum of the layers is normalised, too
  std::int64_t vocabulary = 0;

  Weights weights = Weights::plain;
  std::string quantization;  ///< says how, where weights are not plain

  /// What is in the model and in no other field, one sentence each, and what was taken from
  /// transformers' defaults.
  std::vector<std::string> notes;
};

/// Reads the text of a `config.json` by its `model_type`, with the names and defaults of that
/// type's configuration class in transformers 5. Of a model that sees or hears the language model,
/// `text_config`, is read. Fields that the type does not need may hold anything. Errors:
/// `invalid_argument` naming file, line and field; for a type that is not known, all that are.
Result<ModelConfig> read_model_config(std::string_view config, std::string_view file);

}  // namespace kernwright
