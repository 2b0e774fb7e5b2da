#include "service/sweep/model_worklist.h"

#include <algorithm>
#include <set>
#include <utility>

#include "service/sweep/model_worklist_config.h"
#include "service/sweep/worklist.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

/// So many that the rows of all their heads still fit into 64 bits.
constexpr std::int64_t kMostTokens = std::int64_t{1} << 30;

/// Our name of an activation that transformers spells so; empty where we have none.
std::string_view activation_of(std::string_view name) {
  if (name == "silu" || name == "swish") return "silu";
  if (name == "gelu" || name == "gelu_python") return "gelu_erf";
  if (name == "gelu_new" || name == "gelu_fast" || name == "gelu_accurate" ||
      name == "gelu_pytorch_tanh" || name == "gelu_python_tanh") {
    return "gelu_tanh";
  }
  if (name == "relu") return "relu";
  if (name == "relu2") return "relu_squared";
  return {};
}

/// Collects what one GPU runs of a model, for all token counts.
class Collector {
 public:
  Collector(const ModelConfig& model, const ModelUse& use, const Catalog& catalog)
      : model_(model), use_(use), catalog_(catalog) {}

  Result<ModelWorklist> collect(std::string_view file) {
    embedding();
    if (model_.latent) {
      latent_attention(*model_.latent);
    } else {
      attention();
    }
    if (model_.intermediate > 0) feed_forward(split(model_.intermediate));
    if (model_.experts > 0) experts();
    product(split_up(model_.vocabulary), model_.hidden);
    choice();
    norms();
    fused_step();
    for (const std::string& text : model_.notes) note(text);
    if (model_.weights == Weights::quantized) {
      note(concat("the products of the layers are left out: their weights are quantised, ",
                  model_.quantization,
                  ", and matmul has fp8 with one scale a tensor alone; without "
                  "quantization_config they are listed as if they were not"));
    }
    if (use_.tensor_parallel > 1) {
      note(
          "the sums over all GPUs behind output and down products are left out: there is no such "
          "operation");
    }
    if (full()) {
      return Error{
          ErrorCode::invalid_argument,
          concat(file, ": ", use_.tokens.size(), " token counts and ", use_.contexts.size(),
                 " contexts give more than ", kMostProblems, " problems, the most of a worklist")};
    }
    list_problems();
    return std::move(list_);
  }

 private:
  /// The heads of one GPU and their columns, of queries and keys and of values.
  struct Heads {
    std::int64_t query = 0;
    std::int64_t key_value = 0;
    std::int64_t dim = 0;
    std::int64_t value_dim = 0;
  };

  // Of what the GPUs share each has an equal part; the head's is padded.
  std::int64_t split(std::int64_t size) const { return size / use_.tensor_parallel; }
  std::int64_t split_up(std::int64_t size) const {
    return (size + use_.tensor_parallel - 1) / use_.tensor_parallel;
  }

  /// Tokens of a prompt, and one each of sequences that are decoded, which it counts on.
  void embedding() {
    const auto look_up = [&](std::int64_t tokens, const char* lengths) {
      add(Problem::make(
          "embedding",
          {{"tokens", tokens}, {"hidden", model_.hidden}, {"vocabulary", model_.vocabulary}},
          {{"dtype", dtype()}, {"lengths", lengths}}));
    };
    for (const std::int64_t tokens : use_.tokens) {
      if (tokens > 1) look_up(tokens, "none");
      if (tokens <= kMostSequences) look_up(tokens, "advance");
    }
  }

  /// Of what the head gives for the last token of each sequence. More rows are of prompts.
  void choice() {
    if (use_.tensor_parallel > 1) {
      note(
          "the choice of a token is left out: each GPU has a part of the head's results, and "
          "argmax gives no values to compare between them");
      return;
    }
    for (const std::int64_t tokens : use_.tokens) {
      add(Problem::make(
          "argmax",
          {{"rows", tokens <= kMostSequences ? tokens : 1}, {"columns", model_.vocabulary}},
          {{"dtype", dtype()}}));
    }
  }

  Heads heads_of_gpu() const {
    return {split(model_.heads), std::max<std::int64_t>(split(model_.kv_heads), 1), model_.head_dim,
            model_.head_dim};
  }

  void attention() {
    const Heads of_gpu = heads_of_gpu();
    const std::int64_t heads = of_gpu.query, kv_heads = of_gpu.key_value;
    const std::int64_t head_dim = model_.head_dim;
    const std::int64_t columns = (heads + 2 * kv_heads) * head_dim;
    // An engine reads q, k and v where the product left them, or wants three tensors. Without an
    // engine each may be a product of its own.
    layer_product(columns, model_.hidden, with_bias(model_.qkv_bias));
    layer_product(heads * head_dim, model_.hidden, with_bias(model_.qkv_bias));
    layer_product(kv_heads * head_dim, model_.hidden, with_bias(model_.qkv_bias));
    Problem::Flags three = with_bias(model_.qkv_bias);
    three.emplace_back("split", "qkv");
    layer_product(columns, model_.hidden, std::move(three), kv_heads * head_dim);
    row_parallel_product(model_.hidden, heads * head_dim, model_.output_bias);
    if (model_.query_norm) {
      norm("rmsnorm", heads, head_dim);
      norm("rmsnorm", kv_heads, head_dim);
    }
    rope(heads, kv_heads);
    if (model_.causal) {
      prompts(of_gpu);
      if (model_.query_norm && rotates()) begin_caches(of_gpu);
      cached_steps(of_gpu);
    } else {
      note(
          "attention is left out: its queries see keys on both sides, and mask=window has one side "
          "alone");
    }
    if (model_.weights == Weights::fp8) {
      note(
          "the quantising of attention's results for the output product is left out: attention has "
          "no results in fp8");
    }
  }

  void prompts(const Heads& heads) {
    for (const std::int64_t tokens : use_.tokens) {
      if (tokens > 1) attend(heads, 1, tokens, tokens);
    }
  }

  void cached_steps(const Heads& heads) {
    const auto attend_both = [&](std::int64_t batch, std::int64_t q_len, std::int64_t kv_len) {
      for (const char* cache : {"contiguous", "paged"}) {
        attend(heads, batch, q_len, kv_len, {{"lengths", "kv"}, {"cache", cache}});
      }
      append_to_pages(heads, batch, q_len, kv_len);
    };
    for (const std::int64_t tokens : use_.tokens) {
      for (const std::int64_t context : use_.contexts) {
        if (full()) return;
        if (tokens <= kMostSequences) attend_both(tokens, 1, context);
        if (tokens > 1 && context > tokens) attend_both(1, tokens, context);
      }
    }
  }

  void attend(const Heads& heads, std::int64_t batch, std::int64_t q_len, std::int64_t kv_len,
              const Problem::Flags& more = {}, const char* full_mask = "causal") {
    const auto attend_with = [&](const char* mask, std::int64_t window) {
      Problem::Flags flags = {{"dtype", dtype()}, {"mask", mask}};
      if (model_.softcap) flags.emplace_back("softcap", "tanh");
      if (model_.sinks) flags.emplace_back("sink", "head");
      flags.insert(flags.end(), more.begin(), more.end());
      add(Problem::make("attention",
                        {{"batch", batch},
                         {"heads", heads.query},
                         {"kv_heads", heads.key_value},
                         {"q_len", q_len},
                         {"kv_len", kv_len},
                         {"head_dim", heads.dim},
                         {"head_dim_v", heads.value_dim},
                         {"window", window}},
                        std::move(flags)));
    };
    // A window that is no shorter than the keys leaves none of them out.
    const bool cuts = model_.window > 0 && model_.window < kv_len;
    if (model_.full_layers || !cuts) attend_with(full_mask, 1);
    if (cuts) attend_with("window", model_.window);
  }

  void append_to_pages(const Heads& heads, std::int64_t batch, std::int64_t q_len,
                       std::int64_t kv_len) {
    append(heads, batch, q_len, kv_len, {{"lengths", "kv"}, {"cache", "paged"}});
  }

  /// The whole of a prompt at once, as its norms and rope in one kernel.
  void begin_caches(const Heads& heads) {
    for (const std::int64_t tokens : use_.tokens) {
      if (tokens > 1) append(heads, 1, tokens, tokens, {});
    }
  }

  /// Writes keys and values of new tokens to a cache, and normalises and rotates on the way where
  /// rope rotates.
  void append(const Heads& heads, std::int64_t batch, std::int64_t q_len, std::int64_t kv_len,
              Problem::Flags flags) {
    Problem::Dims dims = {{"batch", batch},        {"kv_heads", heads.key_value},
                          {"q_len", q_len},        {"kv_len", kv_len},
                          {"head_dim", heads.dim}, {"head_dim_v", heads.value_dim}};
    flags.emplace_back("dtype", dtype());
    if (rotates()) {
      dims.emplace_back("heads", heads.query);
      flags.emplace_back("rope", "qk");
      flags.emplace_back("pairs", pairs());
      flags.emplace_back("norm", model_.query_norm ? "rms" : "none");
    }
    add(Problem::make("kv_append", std::move(dims), std::move(flags)));
  }

  /// A step in as few kernels as there are operations for, of decoding five a layer: products that
  /// normalise their rows, that give q, k and v apart and that add to the sum of the layers, and an
  /// attention that takes q, k and v as they come out of a product.
  void fused_step() {
    if (!model_.latent && model_.weights == Weights::plain) {
      const Heads heads = heads_of_gpu();
      const std::int64_t kv_columns = heads.key_value * heads.dim;
      Problem::Flags three = with_bias(model_.qkv_bias);
      three.emplace_back("split", "qkv");
      product_of_normal(heads.query * heads.dim + 2 * kv_columns, three, kv_columns);
      if (model_.causal && rotates()) append_and_attend(heads);
      product_added(heads.query * heads.dim, model_.output_bias);
      if (model_.intermediate > 0) fused_dense_layer(split(model_.intermediate));
    }
    product_of_normal(split_up(model_.vocabulary), {{"out", "fp32"}});
    if (use_.tensor_parallel > 1) return;
    for_each_decode([&](std::int64_t tokens) {
      add(Problem::make("argmax", {{"rows", tokens}, {"columns", model_.vocabulary}},
                        {{"dtype", "fp32"}}));
    });
  }

  void fused_dense_layer(std::int64_t intermediate) {
    const std::string activation(activation_of(model_.activation));
    if (!has_value("matmul", "activation", activation)) return;
    if (model_.gated && !model_.mlp_bias) {
      product_of_normal(intermediate, {{"activation", activation}, {"gate", "stacked"}});
    }
    product_added(intermediate, model_.mlp_bias);
  }

  /// Of rows that the product normalises itself where matmul can, and that come normalised
  /// elsewhere.
  void product_of_normal(std::int64_t n, Problem::Flags flags, std::int64_t n_kv = 0) {
    flags.emplace_back("dtype", dtype());
    for_each_decode([&](std::int64_t tokens) {
      Problem::Dims dims = {{"m", tokens}, {"n", n}, {"k", model_.hidden}};
      if (n_kv > 0) dims.emplace_back("n_kv", n_kv);
      Problem::Flags own = flags;
      own.emplace_back("norm", "rms");
      Problem normalising = Problem::make("matmul", dims, std::move(own));
      const bool can_be = !model_.layer_norm && is_possible(normalising);
      add(can_be ? std::move(normalising) : Problem::make("matmul", std::move(dims), flags));
    });
  }

  void product_added(std::int64_t k, bool bias) {
    if (use_.tensor_parallel > 1 || model_.result_norms) return;
    Problem::Flags flags = with_bias(bias);
    flags.emplace_back("residual", "add");
    product(model_.hidden, k, std::move(flags));
  }

  /// The one query of a sequence sees all keys without a mask. A cache has all heads of a token
  /// side by side, or all tokens of a head, as static caches of transformers have.
  void append_and_attend(const Heads& heads) {
    const char* append = model_.query_norm ? "norm_rope" : "rope";
    const auto attend_in = [&](std::int64_t tokens, std::int64_t context, const char* cache,
                               const char* layout) {
      attend(heads, tokens, 1, context,
             {{"layout", layout},
              {"lengths", "kv"},
              {"cache", cache},
              {"append", append},
              {"pairs", pairs()}},
             "none");
    };
    for_each_decode([&](std::int64_t tokens) {
      for (const std::int64_t context : use_.contexts) {
        if (full()) return;
        attend_in(tokens, context, "contiguous", "bshd");
        attend_in(tokens, context, "contiguous", "bhsd");
        attend_in(tokens, context, "paged", "bshd");
      }
    });
  }

  /// Calls `work` with each number of sequences that a step may decode.
  template <typename Work>
  void for_each_decode(const Work& work) const {
    for (const std::int64_t tokens : use_.tokens) {
      if (tokens <= kMostSequences) work(tokens);
    }
  }

  /// Whether rope has the model's rotation.
  bool rotates() const {
    return model_.rotation == Rotation::halves || model_.rotation == Rotation::neighbours;
  }
  const char* pairs() const {
    return model_.rotation == Rotation::halves ? "halves" : "neighbours";
  }

  void rope(std::int64_t heads, std::int64_t kv_heads) {
    if (model_.rotation == Rotation::apart) {
      note(
          "the rotation of q and k is left out: it turns a part of each head's columns, and rope "
          "all of them");
    }
    if (!rotates()) return;
    // A cache that is contiguous is appended to in the same launch.
    for (const char* append : {"cache", "none"}) {
      for (const std::int64_t tokens : use_.tokens) {
        add(Problem::make("rope",
                          {{"tokens", tokens},
                           {"heads", heads},
                           {"kv_heads", kv_heads},
                           {"head_dim", model_.head_dim}},
                          {{"dtype", dtype()}, {"pairs", pairs()}, {"append", append}}));
      }
    }
  }

  /// Every GPU makes the low-rank rows for itself, and of them its own heads.
  void latent_attention(const LatentAttention& latent) {
    const std::int64_t heads = split(model_.heads);
    const std::int64_t query = heads * (latent.plain_dim + latent.rotated_dim);
    if (latent.query_rank > 0) {
      layer_product(latent.query_rank, model_.hidden, with_bias(model_.qkv_bias));
      layer_product(query, latent.query_rank);
      norm("rmsnorm", 1, latent.query_rank, feeds_products());
    } else {
      layer_product(query, model_.hidden);
    }
    layer_product(latent.key_value_rank + latent.rotated_dim, model_.hidden,
                  with_bias(model_.qkv_bias));
    layer_product(heads * (latent.plain_dim + latent.value_dim), latent.key_value_rank);
    row_parallel_product(model_.hidden, heads * latent.value_dim, model_.output_bias);
    note(concat("the norm of the compressed keys and values is left out: they are ",
                latent.key_value_rank, " of ", latent.key_value_rank + latent.rotated_dim,
                " columns, and rmsnorm takes contiguous rows"));
    note(concat("the rotation of q and k is left out: it turns ", latent.rotated_dim, " of ",
                latent.plain_dim + latent.rotated_dim,
                " columns of a head, and rope takes contiguous heads"));
    prompts({heads, heads, latent.plain_dim + latent.rotated_dim, latent.value_dim});
    note(
        "latent attention is listed for prompts alone: what decodes from the compressed keys and "
        "values, its absorbed form, is left out with its products, since no kernel has heads so "
        "wide");
  }

  /// `intermediate`: of this GPU.
  void feed_forward(std::int64_t intermediate) {
    const std::string_view activation = activation_of(model_.activation);
    if (activation.empty()) {
      note(concat("the activation \"", model_.activation,
                  "\" is left out: no operation has it under that name"));
    }
    layer_product((model_.gated ? 2 : 1) * intermediate, model_.hidden,
                  with_bias(model_.mlp_bias && model_.gated));
    row_parallel_product(model_.hidden, intermediate, model_.mlp_bias);
    if (activation.empty()) return;
    // An engine asks for all of it in one kernel, or for the product and the activation behind it.
    if (model_.gated) {
      activate("gated_activation", intermediate, activation, {{"layout", "packed"}},
               feeds_products());
    } else {
      activate("bias_activation", intermediate, activation, {}, {});
    }
    fused_feed_forward(intermediate, std::string(activation));
  }

  void fused_feed_forward(std::int64_t intermediate, const std::string& activation) {
    if (!has_value("matmul", "activation", activation)) {
      note(concat("the first product of a layer with ", activation,
                  " in one kernel is left out: matmul has no such activation"));
    } else if (!model_.gated) {
      Problem::Flags flags = with_bias(true);
      flags.emplace_back("activation", activation);
      layer_product(intermediate, model_.hidden, std::move(flags));
    } else if (model_.mlp_bias) {
      note("the gated product in one kernel is left out: it takes no bias");
    } else if (model_.weights == Weights::fp8) {
      note("the gated product in one kernel is left out: its result in fp8 would need a scale");
    } else {
      layer_product(intermediate, model_.hidden, {{"activation", activation}, {"gate", "stacked"}});
    }
  }

  void activate(const std::string& operation, std::int64_t columns, std::string_view activation,
                Problem::Flags flags, const Problem::Flags& more) {
    if (!has_value(operation, "activation", activation)) {
      note(concat("the activation ", activation, " is left out: ", operation, " has none such"));
      return;
    }
    flags.emplace_back("activation", std::string(activation));
    flags.insert(flags.end(), more.begin(), more.end());
    rows(operation, 1, columns, flags);
  }

  void experts() {
    Problem::Flags flags = with_bias(model_.router == Router::biased);
    if (model_.router == Router::precise) {
      flags.emplace_back("out", "fp32");
      note(concat("the router is listed with fp32 results of ", dtype(),
                  " operands: transformers multiplies in fp32, and of fp32 operands matmul takes "
                  "the bits of tf32 alone"));
    }
    product(model_.experts, model_.hidden, flags);  // every GPU has all of it
    note(
        "the choice of experts among the router's values is left out: there is no operation for "
        "it");
    grouped_products();
    if (model_.shared_intermediate > 0) feed_forward(split(model_.shared_intermediate));
  }

  /// Of the experts, whose inner sizes the GPUs share. Each token is a row of several experts.
  void grouped_products() {
    const std::string activation{activation_of(model_.activation)};
    const std::int64_t inner = split(model_.expert_intermediate);
    const bool is_plain = model_.weights == Weights::plain && model_.gated && !model_.mlp_bias &&
                          has_value("grouped_matmul", "activation", activation);
    if (!is_plain || model_.experts_of_token == 0 || inner % 8 != 0 ||
        model_.expert_intermediate % use_.tensor_parallel != 0) {
      note(
          "the products of experts are left out: grouped_matmul takes weights of 16 bits without a "
          "bias, a plain gate, inner sizes of whole vectors of 16 bytes on each GPU, and the "
          "number of experts of a token");
      return;
    }
    for (const std::int64_t tokens : use_.tokens) {
      const auto grouped = [&](std::int64_t n, std::int64_t k, Problem::Flags flags) {
        flags.emplace_back("dtype", dtype());
        add(Problem::make("grouped_matmul",
                          {{"groups", model_.experts},
                           {"rows", tokens * model_.experts_of_token},
                           {"n", n},
                           {"k", k}},
                          flags));
      };
      grouped(inner, model_.hidden, {{"activation", activation}, {"gate", "stacked"}});
      grouped(model_.hidden, inner, {});
    }
  }

  /// The first norm has no residual; the others take up the sum so far, which the one behind the
  /// last layer does too.
  void norms() {
    const std::string operation = model_.layer_norm ? "layernorm" : "rmsnorm";
    const Problem::Flags residual = {{"residual", "add"}};
    if (const Problem::Flags out = feeds_products(); !out.empty()) {
      norm(operation, 1, model_.hidden, out);
      Problem::Flags both = residual;
      both.insert(both.end(), out.begin(), out.end());
      norm(operation, 1, model_.hidden, both);
    } else {
      norm(operation, 1, model_.hidden);
    }
    norm(operation, 1, model_.hidden, residual);
  }

  void norm(const std::string& operation, std::int64_t rows_per_token, std::int64_t columns,
            const Problem::Flags& flags = {}) {
    rows(operation, rows_per_token, columns, flags);
  }

  void rows(const std::string& operation, std::int64_t rows_per_token, std::int64_t columns,
            Problem::Flags flags) {
    flags.emplace_back("dtype", dtype());
    for (const std::int64_t tokens : use_.tokens) {
      add(Problem::make(operation, {{"rows", tokens * rows_per_token}, {"columns", columns}},
                        flags));
    }
  }

  /// A product of a layer, whose weights may be quantised.
  void layer_product(std::int64_t n, std::int64_t k, Problem::Flags flags = {},
                     std::int64_t n_kv = 0) {
    if (model_.weights == Weights::quantized) return;
    if (model_.weights == Weights::fp8) {
      flags.insert(flags.end(), {{"dtype", "fp8_e4m3"}, {"out", dtype()}, {"scaling", "alpha"}});
    }
    product(n, k, std::move(flags), n_kv);
  }

  /// One whose rows of k are split: the GPUs' results are summed, so one of them adds the bias.
  void row_parallel_product(std::int64_t n, std::int64_t k, bool bias) {
    if (bias) layer_product(n, k, with_bias(true));
    if (!bias || use_.tensor_parallel > 1) layer_product(n, k);
  }

  void product(std::int64_t n, std::int64_t k, Problem::Flags flags = {}, std::int64_t n_kv = 0) {
    const bool typed = std::any_of(flags.begin(), flags.end(),
                                   [](const auto& flag) { return flag.first == "dtype"; });
    if (!typed) flags.emplace_back("dtype", dtype());
    for (const std::int64_t m : use_.tokens) {
      Problem::Dims dims = {{"m", m}, {"n", n}, {"k", k}};
      if (n_kv > 0) dims.emplace_back("n_kv", n_kv);
      add(Problem::make("matmul", std::move(dims), flags));
    }
  }

  static Problem::Flags with_bias(bool bias) {
    return bias ? Problem::Flags{{"bias", "column"}} : Problem::Flags{};
  }

  /// What makes an operation's result an operand of the next product.
  Problem::Flags feeds_products() const {
    return model_.weights == Weights::fp8 ? Problem::Flags{{"out", "fp8_e4m3"}} : Problem::Flags{};
  }

  std::string dtype() const { return std::string(to_string(use_.dtype)); }

  bool has_value(std::string_view operation, std::string_view flag, std::string_view value) const {
    const Result<const Operation*> found = catalog_.operation(operation);
    if (!found) return false;
    for (const Flag& each : (*found)->flags) {
      if (each.name == flag) return std::ranges::find(each.values, value) != each.values.end();
    }
    return false;
  }

  bool is_possible(const Problem& problem) const {
    const Result<const Operation*> found = catalog_.operation(problem.operation());
    return found && (*found)->normalize(problem);
  }

  void note(std::string text) {
    if (std::ranges::find(list_.notes, text) == list_.notes.end()) {
      list_.notes.push_back(std::move(text));
    }
  }

  /// Asks for the problem, unless the list has more than it may already.
  void add(Problem problem) {
    if (!full()) asked_.push_back(std::move(problem));
  }

  bool full() const { return asked_.size() > kMostProblems; }

  void list_problems() {
    std::set<std::string> known;
    for (const Problem& problem : asked_) {
      const Result<const Operation*> operation = catalog_.operation(problem.operation());
      if (!operation) {
        note(concat("there is no operation ", problem.operation()));
        continue;
      }
      Result<Problem> normalized = (*operation)->normalize(problem);
      if (!normalized) {
        note(concat("what cannot be is left out, ", normalized.error().message));
      } else if (known.insert(normalized->text()).second) {
        list_.problems.push_back(*std::move(normalized));
      }
    }
  }

  const ModelConfig& model_;
  const ModelUse& use_;
  const Catalog& catalog_;
  std::vector<Problem> asked_;
  ModelWorklist list_;
};

Result<void> check_split(const ModelConfig& model, const ModelUse& use, std::string_view file) {
  const std::int64_t parts = use.tensor_parallel;
  const auto refuse = [&](std::string_view what, std::int64_t size) {
    return Error{ErrorCode::invalid_argument,
                 concat(file, ": ", what, " is ", size, ", which ", parts, " GPUs do not divide")};
  };
  if (model.heads % parts != 0) return refuse("the number of attention heads", model.heads);
  if (!model.latent && model.kv_heads % parts != 0 && parts % model.kv_heads != 0) {
    return refuse("num_key_value_heads", model.kv_heads);
  }
  if (model.intermediate % parts != 0) {
    return refuse("the feed-forward layers' inner size", model.intermediate);
  }
  if (model.shared_intermediate % parts != 0) {
    return refuse("the shared experts' inner size", model.shared_intermediate);
  }
  return {};
}

Result<void> check_sizes(const std::vector<std::int64_t>& sizes, std::string_view what) {
  for (const std::int64_t tokens : sizes) {
    if (tokens < 1 || tokens > kMostTokens) {
      return Error{ErrorCode::invalid_argument, concat(what, " of ", tokens, " tokens: from 1 to ",
                                                       kMostTokens, " are possible")};
    }
  }
  return {};
}

}  // namespace

Result<ModelWorklist> model_worklist(std::string_view config, std::string_view file,
                                     const ModelUse& use, const Catalog& catalog) {
  KW_ASSIGN(const ModelConfig model, read_model_config(config, file));
  KW_TRY(check_split(model, use, file));
  KW_TRY(check_sizes(use.tokens, "a step"));
  KW_TRY(check_sizes(use.contexts, "a context"));
  return Collector(model, use, catalog).collect(file);
}

}  // namespace kernwright
