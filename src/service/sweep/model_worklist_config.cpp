#include "service/sweep/model_worklist_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <utility>

#include "support/json.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

/// So large that products of two sizes and a small factor fit into 64 bits.
constexpr std::int64_t kLargestSize = std::int64_t{1} << 30;

/// Whether a product has a bias: some types leave it to attention_bias or mlp_bias, `unless_said`
/// with the given answer where the config has no such field.
enum class Bias { no, yes, no_unless_said, yes_unless_said };

/// Which layers of a model with experts have none.
enum class DenseLayers { none, first, between };

/// Which layers of a model have a window, where sliding_window says that there is one: those that
/// layer_types names, or without it those from max_window_layers on (`later`), every other one from
/// the first (`alternate`), or all but each sliding_window_pattern-th (`most`).
enum class WindowedLayers { none, all, later, alternate, most };

/// A field's name, with another that transformers takes as well; empty: there is none.
using Names = std::array<std::string_view, 2>;

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
  Names hidden_names = {"hidden_size"};
  Names heads_names = {"num_attention_heads"};
  Names experts_names = {"num_local_experts", "num_experts"};
  Names intermediate_name = {"intermediate_size"};
  Names activation_name = {"hidden_act"};
};

// Defaults as in transformers 5.24, `configuration_<type>.py`; what is fixed as in
// `modeling_<type>.py` beside it.
constexpr ModelType kTypes[] = {
    {.name = "llama",
     .hidden = 4096,
     .heads = 32,
     .intermediate = 11008,
     .vocabulary = 32000,
     .qkv_bias = Bias::no_unless_said,
     .output_bias = Bias::no_unless_said,
     .mlp_bias = Bias::no_unless_said},
    {.name = "mistral",
     .hidden = 4096,
     .heads = 32,
     .kv_heads = 8,
     .intermediate = 14336,
     .vocabulary = 32000,
     .windowed_layers = WindowedLayers::all,
     .window = 4096},
    {.name = "qwen2",
     .hidden = 4096,
     .heads = 32,
     .kv_heads = 32,
     .intermediate = 22016,
     .vocabulary = 151936,
     .qkv_bias = Bias::yes,
     .layers = 32,
     .windowed_layers = WindowedLayers::later,
     .window_if_asked = true,
     .window = 4096},
    {.name = "qwen3",
     .hidden = 4096,
     .heads = 32,
     .kv_heads = 32,
     .head_dim = 128,
     .intermediate = 22016,
     .vocabulary = 151936,
     .qkv_bias = Bias::no_unless_said,
     .output_bias = Bias::no_unless_said,
     .query_norm = true,
     .layers = 32,
     .windowed_layers = WindowedLayers::later,
     .window_if_asked = true,
     .window = 4096},
    {.name = "qwen3_moe",
     .hidden = 2048,
     .heads = 32,
     .kv_heads = 4,
     .intermediate = 6144,
     .vocabulary = 151936,
     .qkv_bias = Bias::no_unless_said,
     .output_bias = Bias::no_unless_said,
     .query_norm = true,
     .layers = 24,
     .windowed_layers = WindowedLayers::all,
     .window_if_asked = true,
     .window = 4096,
     .experts = 128,
     .experts_of_token = 8,
     .dense_layers = DenseLayers::between,
     .expert_intermediate = 768,
     .experts_names = {"num_experts", "num_local_experts"}},
    {.name = "mixtral",
     .hidden = 4096,
     .heads = 32,
     .kv_heads = 8,
     .intermediate = 14336,
     .vocabulary = 32000,
     .windowed_layers = WindowedLayers::all,
     .experts = 8,
     .experts_of_token = 2},
    {.name = "gemma2",
     .hidden = 2304,
     .heads = 8,
     .kv_heads = 4,
     .head_dim = 256,
     .intermediate = 9216,
     .vocabulary = 256000,
     .activation = "gelu_pytorch_tanh",
     .qkv_bias = Bias::no_unless_said,
     .output_bias = Bias::no_unless_said,
     .layers = 26,
     .windowed_layers = WindowedLayers::alternate,
     .window = 4096,
     .softcap = 50,
     .result_norms = true,
     .activation_name = {"hidden_activation"}},
    {.name = "gemma3_text",
     .around = "gemma3",
     .hidden = 2304,
     .heads = 8,
     .kv_heads = 4,
     .head_dim = 256,
     .intermediate = 9216,
     .vocabulary = 262208,
     .activation = "gelu_pytorch_tanh",
     .qkv_bias = Bias::no_unless_said,
     .output_bias = Bias::no_unless_said,
     .query_norm = true,
     .layers = 26,
     .windowed_layers = WindowedLayers::most,
     .window = 4096,
     .result_norms = true,
     .activation_name = {"hidden_activation"}},
    {.name = "glm4",
     .hidden = 4096,
     .heads = 32,
     .kv_heads = 2,
     .head_dim = 128,
     .intermediate = 13696,
     .vocabulary = 151552,
     .qkv_bias = Bias::yes_unless_said,
     .rotation = Rotation::neighbours,
     .rotated_share = 0.5,
     .result_norms = true},
    {.name = "deepseek_v2",
     .hidden = 4096,
     .heads = 32,
     .intermediate = 11008,
     .vocabulary = 102400,
     .qkv_bias = Bias::no_unless_said,
     .output_bias = Bias::no_unless_said,
     .mlp_bias = Bias::no_unless_said,
     .rotation = Rotation::apart,
     .layers = 32,
     .experts = 64,
     .dense_layers = DenseLayers::first,
     .first_dense = 0,
     .expert_intermediate = 1407,
     .shared_experts = 2,
     .router = Router::precise,
     .latent = true,
     .experts_names = {"n_routed_experts", "num_experts"}},
    {.name = "deepseek_v3",
     .hidden = 7168,
     .heads = 128,
     .intermediate = 18432,
     .vocabulary = 129280,
     .qkv_bias = Bias::no_unless_said,
     .output_bias = Bias::no_unless_said,
     .rotation = Rotation::apart,
     .layers = 61,
     .experts = 256,
     .experts_of_token = 8,
     .dense_layers = DenseLayers::first,
     .first_dense = 3,
     .expert_intermediate = 2048,
     .shared_experts = 1,
     .router = Router::precise,
     .latent = true,
     .experts_names = {"n_routed_experts", "num_local_experts"}},
    {.name = "gpt_oss",
     .hidden = 2880,
     .heads = 64,
     .kv_heads = 8,
     .head_dim = 64,
     .intermediate = 2880,
     .vocabulary = 201088,
     .qkv_bias = Bias::yes_unless_said,
     .output_bias = Bias::yes_unless_said,
     .layers = 36,
     .windowed_layers = WindowedLayers::alternate,
     .window = 128,
     .sinks = true,
     .experts = 128,
     .router = Router::biased},
    {.name = "gpt2",
     .hidden = 768,
     .heads = 12,
     .vocabulary = 50257,
     .activation = "gelu_new",
     .qkv_bias = Bias::yes,
     .output_bias = Bias::yes,
     .mlp_bias = Bias::yes,
     .rotation = Rotation::none,
     .gated = false,
     .layer_norm = true,
     .hidden_names = {"n_embd", "hidden_size"},
     .heads_names = {"n_head", "num_attention_heads"},
     .intermediate_name = {"n_inner"},
     .activation_name = {"activation_function"}},
    {.name = "phi3",
     .hidden = 3072,
     .heads = 32,
     .intermediate = 8192,
     .vocabulary = 32064,
     .rotated_share = 1,
     .windowed_layers = WindowedLayers::all},
};

/// The fields of a config. Remembers the first that does not hold what it should, and which
/// defaults were taken. A field that is null counts as one that says "none" where that means
/// something.
class Fields {
 public:
  Fields(const JsonNode& root, std::string_view file) : root_(root), file_(file) {}

  /// The first of `names` that there is.
  const JsonNode* find(const Names& names) {
    for (const std::string_view name : names) {
      const JsonNode* node = name.empty() ? nullptr : root_.find(name);
      if (node == nullptr) continue;
      name_ = name;
      return node;
    }
    name_ = names.front();
    return nullptr;
  }

  /// A size of 1 or more.
  std::int64_t size(const Names& names, std::int64_t fallback) {
    const JsonNode* node = find(names);
    if (node == nullptr) return by_default(fallback);
    return integer(*node, 1);
  }
  /// A size of 1 or more, or nothing where it is null. `fallback` may be nothing too.
  std::optional<std::int64_t> size_or_none(const Names& names,
                                           std::optional<std::int64_t> fallback) {
    const JsonNode* node = find(names);
    if (node == nullptr) return fallback ? by_default(*fallback) : fallback;
    if (is_null(*node)) return std::nullopt;
    return integer(*node, 1);
  }
  /// A number of 0 or more; null is 0.
  std::int64_t count(const Names& names, std::int64_t fallback) {
    const JsonNode* node = find(names);
    if (node == nullptr) return by_default(fallback);
    return is_null(*node) ? 0 : integer(*node, 0);
  }
  /// A number above 0, or nothing where it is null.
  std::optional<double> number_or_none(const Names& names, double fallback) {
    const JsonNode* node = find(names);
    if (node == nullptr) return by_default(fallback);
    double value = 0;
    if (is_null(*node) || (node->number(value) && value > 0)) {
      return value > 0 ? std::optional(value) : std::nullopt;
    }
    refuse(*node, "a number above 0");
    return fallback;
  }
  std::string text(const Names& names, std::string_view fallback) {
    const JsonNode* node = find(names);
    if (node == nullptr) {
      by_default(fallback);
      return std::string(fallback);
    }
    if (node->string()) return *node->string();
    refuse(*node, "a string");
    return {};
  }
  bool boolean(const Names& names, bool fallback) {
    const JsonNode* node = find(names);
    if (node == nullptr || is_null(*node)) return node == nullptr && fallback;
    if (node->boolean()) return *node->boolean();
    refuse(*node, "true or false");
    return false;
  }

  /// That `node` is not what the field that was looked up last has to be.
  void refuse(const JsonNode& node, std::string_view what) {
    const std::int64_t* number = node.integer();
    fail(node, concat(name_, " must be ", what, ", is ",
                      number ? concat(*number) : std::string(node.kind())));
  }
  void fail(const JsonNode& node, std::string_view what) {
    if (error_.empty()) error_ = concat(file_, ":", node.line, ": ", what);
  }

  static bool is_null(const JsonNode& node) {
    return std::holds_alternative<std::nullptr_t>(node.value);
  }

  const JsonNode& root() const { return root_; }
  const std::string& error() const { return error_; }
  const std::string& defaults() const { return defaults_; }

 private:
  template <typename Value>
  Value by_default(const Value& value) {
    defaults_ += concat(defaults_.empty() ? "" : " ", name_, "=", value);
    return value;
  }
  std::int64_t integer(const JsonNode& node, std::int64_t least) {
    const std::int64_t* value = node.integer();
    if (value && *value >= least && *value <= kLargestSize) return *value;
    refuse(node, concat("an integer from ", least, " to ", kLargestSize));
    return 1;
  }

  const JsonNode& root_;
  std::string_view file_;
  std::string_view name_;
  std::string error_;
  std::string defaults_;
};

bool read_bias(Fields& fields, std::string_view name, Bias bias) {
  if (bias == Bias::no || bias == Bias::yes) return bias == Bias::yes;
  return fields.boolean({name}, bias == Bias::yes_unless_said);
}

/// The rotation of heads of which a share may stay as it is.
Rotation read_rotation(Fields& fields, const ModelType& type) {
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

void read_attention(Fields& fields, const ModelType& type, ModelConfig& model) {
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
bool read_layer_types(Fields& fields, ModelConfig& model) {
  const JsonNode* list = fields.find({"layer_types"});
  if (list == nullptr || Fields::is_null(*list)) return false;
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

void read_windows(Fields& fields, const ModelType& type, ModelConfig& model) {
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
void read_logits(Fields& fields, const ModelType& type, ModelConfig& model) {
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

LayerKinds read_layer_kinds(Fields& fields, const ModelType& type) {
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
  } else if (list && !Fields::is_null(*list)) {
    fields.refuse(*list, "a list of integers");
  }
  const auto taken = std::count_if(listed.begin(), listed.end(),
                                   [step](std::int64_t layer) { return (layer + 1) % step == 0; });
  return {.dense = (step > 1) || !listed.empty(), .with_experts = layers / step > taken};
}

void read_feed_forward(Fields& fields, const ModelType& type, ModelConfig& model) {
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
void add_notes(Fields& fields, const ModelType& type, ModelConfig& model) {
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
    if (cap ? !Fields::is_null(*cap) : type.name == "gemma2") {
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

struct Quantization {
  Weights weights = Weights::plain;
  std::string text;
};

std::string text_of(const JsonNode& node, std::string_view name) {
  const JsonNode* found = node.find(name);
  return found && found->string() ? *found->string() : std::string();
}

bool is_true(const JsonNode& node, std::string_view name) {
  const JsonNode* found = node.find(name);
  return found && found->boolean() && *found->boolean();
}

/// Whether one side of a group of compressed-tensors, weights or activations, is fp8 with one
/// fixed scale a tensor.
bool is_static_fp8(const JsonNode* side) {
  if (side == nullptr || !side->object()) return false;
  const JsonNode* bits = side->find("num_bits");
  const std::string strategy = text_of(*side, "strategy");
  return bits && bits->integer() && *bits->integer() == 8 && text_of(*side, "type") == "float" &&
         (strategy == "tensor" || strategy.empty()) && !is_true(*side, "dynamic");
}

Quantization read_compressed_tensors(const JsonNode& node, const std::string& method) {
  const JsonNode* groups = node.find("config_groups");
  if (groups && groups->object() && !groups->object()->empty() &&
      std::all_of(groups->object()->begin(), groups->object()->end(), [](const auto& group) {
        return is_static_fp8(group.second.find("weights")) &&
               is_static_fp8(group.second.find("input_activations"));
      })) {
    return {Weights::fp8, concat(method, ", fp8 with a scale a tensor")};
  }
  const std::string format = text_of(node, "format");
  return {Weights::quantized, format.empty() ? method : concat(method, ", ", format)};
}

Quantization read_fp8(const JsonNode& node) {
  if (is_true(node, "dequantize")) return {};
  const bool fixed = text_of(node, "activation_scheme") == "static";
  const JsonNode* block = node.find("weight_block_size");
  // Where nothing is said transformers takes blocks. A scale of activations that is fixed before
  // is one of the whole tensor, and goes with such weights.
  if (block ? Fields::is_null(*block) : fixed) {
    return fixed ? Quantization{Weights::fp8, "fp8 with a scale a tensor"}
                 : Quantization{Weights::quantized, "fp8, activations with scales of their own"};
  }
  std::string size = "128 x 128";
  if (block && block->array() && block->array()->size() == 2 && block->array()->at(0).integer() &&
      block->array()->at(1).integer()) {
    size = concat(*block->array()->at(0).integer(), " x ", *block->array()->at(1).integer());
  }
  return {Weights::quantized, concat("fp8 with a scale for each block of ", size)};
}

Quantization read_quantization(const JsonNode& node, std::vector<std::string>& notes) {
  const std::string method = text_of(node, "quant_method");
  if (method == "fp8") return read_fp8(node);
  if (method == "compressed-tensors") return read_compressed_tensors(node, method);
  if (method == "modelopt" && text_of(node, "quant_algo") == "FP8") {
    return {Weights::fp8, "modelopt, fp8 with a scale a tensor"};
  }
  if (method == "mxfp4") {
    if (!is_true(node, "dequantize")) {
      notes.emplace_back("quantization_config, mxfp4, is of the experts alone, which are left out");
    }
    return {};
  }
  std::string text = method.empty() ? "by no known method" : method;
  const JsonNode* bits = node.find("bits");
  if (bits && bits->integer()) text += concat(", ", *bits->integer(), " bits");
  if (is_true(node, "load_in_4bit")) text += ", 4 bits";
  if (is_true(node, "load_in_8bit")) text += ", 8 bits";
  return {Weights::quantized, text};
}

/// Modules that stay as they are although others are quantised. The head and routers do anyway.
void note_exceptions(const JsonNode& node, std::vector<std::string>& notes) {
  std::size_t count = 0;
  std::string first;
  for (const std::string_view name : {"modules_to_not_convert", "ignored_layers", "ignore"}) {
    const JsonNode* list = node.find(name);
    if (list == nullptr || !list->array()) continue;
    for (const JsonNode& module : *list->array()) {
      if (!module.string()) continue;
      const std::string& text = *module.string();
      const auto has = [&text](std::string_view part) {
        return text.find(part) != std::string::npos;
      };
      if (has("head") || has("embed") || has("router") || has("vision") || has("multi_modal") ||
          text.ends_with("gate") || text.ends_with("gate$")) {
        continue;
      }
      if (count++ == 0) first = text;
    }
  }
  if (count == 0) return;
  notes.push_back(concat("quantization_config leaves ", count, " modules as they are, such as ",
                         first, ": they are treated as the others of their kind"));
}

void read_weights(const JsonNode& root, Fields& fields, ModelConfig& model) {
  const JsonNode* node = root.find("quantization_config");
  if (node == nullptr) node = fields.find({"quantization_config"});
  if (node == nullptr || Fields::is_null(*node)) return;
  if (!node->object()) {
    fields.fail(*node, concat("quantization_config must be an object, is ", node->kind()));
    return;
  }
  Quantization found = read_quantization(*node, model.notes);
  model.weights = found.weights;
  model.quantization = std::move(found.text);
  if (model.weights != Weights::plain) note_exceptions(*node, model.notes);
}

std::string known_types() {
  std::string names;
  for (const ModelType& type : kTypes) {
    names += concat(names.empty() ? "" : ", ", type.name);
    if (!type.around.empty()) names += concat(", ", type.around);
  }
  return names;
}

Result<const ModelType*> find_type(const JsonNode& root, const JsonNode& text,
                                   std::string_view file) {
  const JsonNode* node = text.find("model_type");
  if (node == nullptr) node = root.find("model_type");
  const std::string_view name =
      node && node->string() ? std::string_view(*node->string()) : std::string_view();
  for (const ModelType& type : kTypes) {
    if (!name.empty() && (type.name == name || type.around == name)) return &type;
  }
  return Error{
      ErrorCode::invalid_argument,
      concat(file, ":", (node ? *node : root).line, ": ",
             node == nullptr  ? std::string("the config has no model_type")
             : node->string() ? concat("model_type \"", name, "\" is not known")
                              : concat("model_type must be a string, is ", node->kind()),
             "; known are ", known_types(),
             ". Of another model write the worklist by hand: {\"problems\": [\"matmul m=16 "
             "n=4096 k=4096 dtype=bf16\", ...]}")};
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
  KW_ASSIGN(const ModelType* type, find_type(root, text, file));

  Fields fields(text, file);
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
  read_weights(root, fields, model);
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
