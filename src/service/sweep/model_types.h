#pragma once

#include <cstdint>
#include <string_view>

#include "service/sweep/config_fields.h"
#include "service/sweep/model_worklist_config.h"
#include "support/json.h"
#include <kernwright/result.h>

namespace kernwright {

/// Whether a product has a bias: some types leave it to attention_bias or mlp_bias, `unless_said`
/// with the given answer where the config has no such field.
enum class Bias { no, yes, no_unless_said, yes_unless_said };

/// Which layers of a model with experts have none.
enum class DenseLayers { none, first, between };

/// Which layers of a model have a window, where sliding_window says that there is one: those that
/// layer_types names, or without it those from max_window_layers on (`later`), every other one from
/// the first (`alternate`), or all but each sliding_window_pattern-th (`most`).
enum class WindowedLayers { none, all, later, alternate, most };

/// A model type: what its classes in transformers fix, and the defaults of what a config may say.
struct ModelType {
  std::string_view name;
  std::string_view around = {};  ///< the type of a model whose text_config this is
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;      ///< 0: as many as heads
  std::int64_t head_dim = 0;      ///< 0: hidden / heads
  std::int64_t intermediate = 0;  ///< 0: 4 hidden
  std::int64_t vocabulary = 0;
  std::string_view activation = "silu";
  Bias qkv_bias = Bias::no;
  Bias output_bias = Bias::no;
  Bias mlp_bias = Bias::no;
  bool query_norm = false;
  Rotation rotation = Rotation::halves;
  double rotated_share = 0;  ///< of a head's columns, by partial_rotary_factor; 0: always all
  std::int64_t layers = 0;   ///< of a type whose layers differ
  WindowedLayers windowed_layers = WindowedLayers::none;
  bool window_if_asked = false;  ///< there is one with use_sliding_window alone
  std::int64_t window = 0;       ///< 0: none
  double softcap = 0;            ///< of the logits of attention; 0: the type has none
  bool sinks = false;
  // Of a model with experts.
  std::int64_t experts = 0;
  std::int64_t experts_of_token = 0;  ///< 0: none unless said
  DenseLayers dense_layers = DenseLayers::none;
  std::int64_t first_dense = 0;
  std::int64_t expert_intermediate = 0;  ///< 0: that of dense layers
  std::int64_t shared_experts = 0;
  Router router = Router::plain;
  bool latent = false;
  bool gated = true;
  bool layer_norm = false;
  bool result_norms = false;
  FieldNames hidden_names = {"hidden_size"};
  FieldNames heads_names = {"num_attention_heads"};
  FieldNames experts_names = {"num_local_experts", "num_experts"};
  FieldNames intermediate_name = {"intermediate_size"};
  FieldNames activation_name = {"hidden_act"};
};

/// The type of the model whose config is `root` and whose fields stand in `text`, which is `root`
/// or its text_config. Errors: `invalid_argument` naming `file` and line; for a type that is not
/// known, all that are.
Result<const ModelType*> find_model_type(const JsonNode& root, const JsonNode& text,
                                         std::string_view file);

}  // namespace kernwright
