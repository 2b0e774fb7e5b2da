#include "service/sweep/model_worklist_config.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "service/sweep/config_fields.h"
#include "service/sweep/model_quantization.h"
#include "service/sweep/model_types.h"
#include "support/json.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

bool read_bias(ConfigFields& fields, std::string_view name, Bias bias) {
  if (bias == Bias::no || bias == Bias::yes) return bias == Bias::yes;
  return fields.boolean({name}, bias == Bias::yes_unless_said);
}

/// The rotation of heads of which a share may stay as it is.
Rotation read_rotation(ConfigFields& fields, const ModelType& type) {
  if (type.rotated_share == 0) return type.rotation;
  double share = type.rotated_share;
  const auto read = [&](const JsonNode* parent) {
    const JsonNode* node = parent ? parent->find("partial_rotary_factor") : nullptr;
    if (node && !node->number(share)) fields.fail(*node, "partial_rotary_factor must be a number");
  };
  read(&fields.root());
  read(fields.root().find("rope_parameters"));
  return share == 1 ? type.rotation : Rotation::apart;
}

/// 0 stands for nothing.
std::optional<std::int64_t> given(std::int64_t size) {
  return size == 0 ? std::nullopt : std::optional(size);
}

void read_attention(ConfigFields& fields, const ModelType& type, ModelConfig& model) {
  model.qkv_bias = read_bias(fields, "attention_bias", type.qkv_bias);
  model.output_bias = read_bias(fields, "attention_bias", type.output_bias);
  model.query_norm = type.query_norm;
  model.rotation = read_rotation(fields, type);
  if (type.latent) {
    // In the order of the initialisers, which is that of evaluation.
    model.latent = LatentAttention{
        .query_rank = fields.size_or_none({"q_lora_rank"}, 1536).value_or(0),
        .key_value_rank = fields.size({"kv_lora_rank"}, 512),
        .plain_dim = fields.size({"qk_nope_head_dim"}, 128),
        .rotated_dim = fields.size({"qk_rope_head_dim"}, 64),
        .value_dim = fields.size({"v_head_dim"}, 128),
    };
    return;
  }
  model.kv_heads = model.heads;
  if (type.layer_norm) {
    model.head_dim = model.hidden / model.heads;
  } else {
    model.kv_heads =
        fields.size_or_none({"num_key_value_heads"}, given(type.kv_heads)).value_or(model.heads);
    model.head_dim = fields.size_or_none({"head_dim"}, given(type.head_dim))
                         .value_or(model.hidden / model.heads);
  }
  if (model.head_dim == 0) {
    fields.fail(fields.root(), concat(type.hidden_names[0], " is ", model.hidden, ", less than ",
                                      type.heads_names[0], ", ", model.heads));
  } else if (model.heads % model.kv_heads != 0) {
    fields.fail(fields.root(),
                concat("num_key_value_heads is ", model.kv_heads,
                       ", which does not divide num_attention_heads, ", model.heads));
  } else if (model.rotation != Rotation::none && model.head_dim % 2 != 0) {
    model.rotation = Rotation::apart;
  }
}

/// Reads from layer_types which layers there are. False where the config has no such list.
bool read_layer_types(ConfigFields& fields, ModelConfig& model) {
  const JsonNode* list = fields.find({"layer_types"});
  if (list == nullptr || ConfigFields::is_null(*list)) return false;
  bool full = false;
  bool windowed = false;
  const auto read = [&](const JsonNode& layer) {
    const std::string* type = layer.string();
    const bool is_full = type && *type == "full_attention";
    const bool is_windowed = type && *type == "sliding_attention";
    full = full || is_full;
    windowed = windowed || is_windowed;
    return is_full || is_windowed;
  };
  if (!list->array() || !std::all_of(list->array()->begin(), list->array()->end(), read)) {
    fields.fail(*list,
                "layer_types must be a list of \"full_attention\" and \"sliding_attention\"");
  }
  model.full_layers = full || !windowed;
  if (!windowed) model.window = 0;
  return true;
}

void read_windows(ConfigFields& fields, const ModelType& type, ModelConfig& model) {
  using enum WindowedLayers;
  if (type.windowed_layers == none) return;
  if (type.window_if_asked && !fields.boolean({"use_sliding_window"}, false)) return;
  model.window = fields.size_or_none({"sliding_window"}, given(type.window)).value_or(0);
  if (model.window == 0) return;
  if (type.windowed_layers == all) {
    model.full_layers = false;
  } else if (!read_layer_types(fields, model)) {
    const std::int64_t layers = fields.size({"num_hidden_layers"}, type.layers);
    if (type.windowed_layers == later) {
      const std::int64_t first = fields.count({"max_window_layers"}, 28);
      model.full_layers = first > 0;
      if (first >= layers) model.window = 0;
    } else {
      const std::int64_t each =
          type.windowed_layers == most ? fields.size({"sliding_window_pattern"}, 6) : 2;
      model.full_layers = layers >= each;
      if (each == 1) model.window = 0;
    }
  }
}

/// The factor that transformers has in the scale of a latent attention, where a config stretches
/// the rotation to longer contexts.
double stretched_scale(const JsonNode& root) {
  const JsonNode* rope = root.find("rope_parameters");
  if (rope == nullptr || !rope->object()) rope = root.find("rope_scaling");
  if (rope == nullptr || !rope->object()) return 1;
  const JsonNode* kind = rope->find("rope_type");
  if (kind == nullptr) kind = rope->find("type");
  if (kind == nullptr || !kind->string() || *kind->string() == "default") return 1;
  double factor = 1;
  double strength = 0;
  const JsonNode* node = rope->find("factor");
  if (node) node->number(factor);
  node = rope->find("mscale_all_dim");
  if (node) node->number(strength);
  const double each = factor > 1 ? 0.1 * strength * std::log(factor) + 1 : 1;  // of q and of k
  return each * each;
}

/// What becomes of the logits of attention: their mask, cap and sinks. The values of scale and cap
/// are arguments of a launch and no part of a problem, so notes have them.
void read_logits(ConfigFields& fields, const ModelType& type, ModelConfig& model) {
  auto& notes = model.notes;
  read_windows(fields, type, model);
  model.sinks = type.sinks;
  if (type.softcap > 0) {
    const auto cap = fields.number_or_none({"attn_logit_softcapping"}, type.softcap);
    model.softcap = cap.has_value();
    if (cap) notes.push_back(concat("launch attention with cap=", *cap));
  }
  if (type.name.starts_with("gemma")) {
    model.causal = !fields.boolean({"use_bidirectional_attention"}, false);
    const auto width = fields.number_or_none({"query_pre_attn_scalar"}, 256);
    if (width && *width != static_cast<double>(model.head_dim)) {
      notes.push_back(concat("launch attention with scale=1/sqrt(", *width,
                             "), by query_pre_attn_scalar: its default is 1/sqrt(head_dim)"));
    }
  }
  if (type.name == "gpt2" && !fields.boolean({"scale_attn_weights"}, true)) {
    notes.emplace_back("launch attention with scale=1: its default is 1/sqrt(head_dim)");
  }
  if (type.name == "gpt2" && fields.boolean({"scale_attn_by_inverse_layer_idx"}, false)) {
    notes.emplace_back(
        "launch attention with the scale of its layer, which is divided by 1 in the first layer, "
        "by 2 in the second and so on");
  }
  const double more = model.latent ? stretched_scale(fields.root()) : 1;
  if (more != 1) {
    notes.push_back(concat("launch attention with scale=", more,
                           "/sqrt(head_dim), by mscale_all_dim: its default is 1/sqrt(head_dim)"));
  }
}

/// Of `layers` layers, which kinds there are.
struct LayerKinds {
  bool dense = true;
  bool with_experts = false;
};

LayerKinds read_layer_kinds(ConfigFields& fields, const ModelType& type) {
  LayerKinds kinds{.dense = false, .with_experts = true};
  if (type.dense_layers == DenseLayers::none) return kinds;
  const std::int64_t layers = fields.size({"num_hidden_layers"}, type.layers);
  if (type.dense_layers == DenseLayers::first) {
    const std::int64_t first = fields.count({"first_k_dense_replace"}, type.first_dense);
    return {.dense = first > 0, .with_experts = first < layers};
  }
  // Every `step`th layer has experts, unless the list names it, counted from 0.
  const std::int64_t step = fields.size({"decoder_sparse_step"}, 1);
  std::set<std::int64_t> listed;
  const JsonNode* list = fields.find({"mlp_only_layers"});
  if (list && list->array()) {
    for (const JsonNode& layer : *list->array()) {
      if (!layer.integer()) fields.refuse(layer, "a list of integers");
      if (layer.integer() && *layer.integer() >= 0 && *layer.integer() < layers) {
        listed.insert(*layer.integer());
      }
    }
  } else if (list && !ConfigFields::is_null(*list)) {
    fields.refuse(*list, "a list of integers");
  }
  const auto taken = std::count_if(listed.begin(), listed.end(),
                                   [step](std::int64_t layer) { return (layer + 1) % step == 0; });
  return {.dense = (step > 1) || !listed.empty(), .with_experts = layers / step > taken};
}

void read_feed_forward(ConfigFields& fields, const ModelType& type, ModelConfig& model) {
  model.gated = type.gated;
  model.mlp_bias = read_bias(fields, "mlp_bias", type.mlp_bias);
  model.activation = fields.text(type.activation_name, type.activation);
  if (type.experts > 0) model.experts = fields.count(type.experts_names, type.experts);
  LayerKinds kinds;
  if (model.experts > 0) kinds = read_layer_kinds(fields, type);
  if (!kinds.with_experts) model.experts = 0;
  if (kinds.dense) {
    model.intermediate =
        type.intermediate > 0
            ? fields.size(type.intermediate_name, type.intermediate)
            : fields.size_or_none(type.intermediate_name, std::nullopt).value_or(4 * model.hidden);
  }
  if (model.experts == 0) return;
  model.router = type.router;
  if (type.router == Router::biased) return;  // its experts have biases and a clamp
  model.experts_of_token = fields.count({"num_experts_per_tok"}, type.experts_of_token);
  model.expert_intermediate = type.expert_intermediate > 0
                                  ? fields.size({"moe_intermediate_size"}, type.expert_intermediate)
                                  : fields.size(type.intermediate_name, type.intermediate);
  if (type.shared_experts == 0) return;
  const std::int64_t shared = fields.count({"n_shared_experts"}, type.shared_experts);
  if (shared > 0) model.shared_intermediate = shared * model.expert_intermediate;
}

/// What is in a model of the type and becomes no problem, or one to be read with care.
void add_notes(ConfigFields& fields, const ModelType& type, ModelConfig& model) {
  auto& notes = model.notes;
  const bool gemma = type.name.starts_with("gemma");
  if (type.rotation == Rotation::none) {
    notes.emplace_back("the embedding of positions is left out, which is added to that of tokens");
  }
  if (gemma) {
    notes.emplace_back(
        "the scale of the embedding, the root of hidden_size, is left out: it is a factor of what "
        "the rows of the table give");
    notes.emplace_back(
        "norms are listed with their weight as it is: those of this model multiply by 1 + weight, "
        "so add the 1 when weights are loaded");
    const JsonNode* cap = fields.find({"final_logit_softcapping"});
    if (cap ? !ConfigFields::is_null(*cap) : type.name == "gemma2") {
      notes.emplace_back(
          "the soft cap of the logits is left out: give it to the head's product as a function, "
          "epilogue=");
    }
  }
  if (type.name == "gpt2") {
    notes.emplace_back(
        "products are listed with weights [n, k], as other models store them; this one stores "
        "[k, n], so transpose them when they are loaded or ask for b_layout=kn");
    if (fields.boolean({"add_cross_attention"}, false)) {
      notes.emplace_back(
          "cross attention is left out: its rows of keys and values are another model's");
    }
  }
  if (type.name == "gpt_oss") {
    notes.emplace_back(
        "the experts' clamped SwiGLU is left out: gated_activation has no clamp, and it works on "
        "what grouped products make");
  }
  if (type.name == "deepseek_v3" &&
      fields.count({"num_nextn_predict_layers", "num_mtp_layers"}, 1) > 0) {
    notes.emplace_back(
        "the layers that predict further tokens are left out: transformers runs a model without "
        "them");
  }
}

}  // namespace

Result<ModelConfig> read_model_config(std::string_view config, std::string_view file) {
  KW_ASSIGN(const JsonNode root, parse_json(config, file));
  if (!root.object()) {
    return Error{ErrorCode::invalid_argument,
                 concat(file, ":", root.line, ": a config is an object, is ", root.kind())};
  }
  const JsonNode* nested = root.find("text_config");
  const bool within = nested != nullptr && nested->object();
  const JsonNode& text = within ? *nested : root;
  KW_ASSIGN(const ModelType* type, find_model_type(root, text, file));

  ConfigFields fields(text, file);
  ModelConfig model;
  model.layer_norm = type->layer_norm;
  model.result_norms = type->result_norms;
  model.hidden = fields.size(type->hidden_names, type->hidden);
  model.heads = fields.size(type->heads_names, type->heads);
  model.vocabulary = fields.size({"vocab_size"}, type->vocabulary);
  read_attention(fields, *type, model);
  read_logits(fields, *type, model);
  read_feed_forward(fields, *type, model);
  add_notes(fields, *type, model);
  read_quantization(root, fields, model);
  if (within) {
    model.notes.emplace_back("all but the language model, text_config, is left out");
    if (type->name == "gemma3_text") {
      model.notes.emplace_back(
          "attention is listed as for text: tokens of an image see each other, which no mask says");
    }
  }
  if (!fields.error().empty()) return Error{ErrorCode::invalid_argument, fields.error()};
  if (!fields.defaults().empty()) {
    model.notes.push_back(concat("not in the config, and taken from transformers' defaults of ",
                                 type->name, ": ", fields.defaults()));
  }
  return model;
}

}  // namespace kernwright
