#include "step.h"

#include <algorithm>

namespace decode {
namespace {

using Dims = kw::Problem::Dims;
using Flags = kw::Problem::Flags;
using Arguments = std::vector<std::pair<std::string, kw::ChainArg>>;

/// The same memory from `bytes` behind its beginning on.
kw::ChainArg behind(const kw::ChainArg& memory, std::int64_t bytes) {
  if (memory.is_slot()) return memory.slot().at(bytes);
  return static_cast<const void*>(static_cast<const char*>(memory.fixed().pointer()) + bytes);
}

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
    norm(memory_.x, memory_.final_norm);
    product(config_.vocabulary, config_.hidden, {{"out", "fp32"}},
            {{"a", memory_.normal}, {"b", memory_.head}, {"d", memory_.logits}});
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

  void norm(const kw::ChainArg& x, const kw::ChainArg& weight) {
    add("rmsnorm", {{"rows", shape_.batch}, {"columns", config_.hidden}}, {},
        {{"x", x}, {"w", weight}, {"y", memory_.normal}, {"eps", config_.norm_epsilon}});
  }

  void product(std::int64_t n, std::int64_t k, const Flags& flags, Arguments arguments) {
    add("matmul", {{"m", shape_.batch}, {"n", n}, {"k", k}}, flags, std::move(arguments));
  }

  /// x to between. q, k and v are columns of one product, and kv_append takes them from its rows.
  void attention(const LayerMemory& layer) {
    const std::int64_t columns = config_.qkv_columns();
    norm(memory_.x, layer.input_norm);
    product(columns, config_.hidden, {},
            {{"a", memory_.normal}, {"b", layer.qkv}, {"d", memory_.qkv}});

    const kw::ChainArg k = behind(memory_.qkv, 2 * config_.query_columns());
    const kw::ChainArg v = behind(k, 2 * config_.kv_columns());
    Dims dims = sizes_of_attention();
    Flags flags = flags_of_attention();
    Arguments arguments{{"q", memory_.qkv},
                        {"k", k},
                        {"v", v},
                        {"cosine", memory_.cosine},
                        {"sine", memory_.sine},
                        {"kv_lengths", memory_.lengths},
                        {"q_out", memory_.rotated},
                        {"k_cache", layer.k_cache},
                        {"v_cache", layer.v_cache}};
    for (const char* pitch : {"ldq", "ldk", "ldv"}) dims.emplace_back(pitch, columns);
    flags.emplace_back("rope", "qk");
    if (config_.query_norm) {
      flags.emplace_back("norm", "rms");
      arguments.emplace_back("q_norm", layer.query_norm);
      arguments.emplace_back("k_norm", layer.key_norm);
      arguments.emplace_back("eps", config_.norm_epsilon);
    }
    if (shape_.paged) arguments.emplace_back("page_table", memory_.page_table);
    add("kv_append", std::move(dims), flags, std::move(arguments));

    arguments = {{"q", memory_.rotated},
                 {"k", layer.k_cache},
                 {"v", layer.v_cache},
                 {"kv_lengths", memory_.lengths},
                 {"o", memory_.attended}};
    if (shape_.paged) arguments.emplace_back("page_table", memory_.page_table);
    add("attention", sizes_of_attention(), flags_of_attention(), std::move(arguments));

    product(config_.hidden, config_.query_columns(), {{"residual", "add"}},
            {{"a", memory_.attended},
             {"b", layer.output},
             {"residual", memory_.x},
             {"d", memory_.between}});
  }

  Dims sizes_of_attention() const {
    Dims dims{{"batch", shape_.batch},        {"heads", config_.heads},
              {"kv_heads", config_.kv_heads}, {"q_len", 1},
              {"kv_len", shape_.capacity},    {"head_dim", config_.head_dim}};
    // Kernels are timed with lengths that differ as much as these do.
    if (shape_.all_tokens != shape_.batch * shape_.capacity) {
      dims.emplace_back("kv_total", shape_.all_tokens);
    }
    if (shape_.paged) dims.emplace_back("page", DecodeShape::kPage);
    return dims;
  }

  Flags flags_of_attention() const {
    return {{"lengths", "kv"}, {"cache", shape_.paged ? "paged" : "contiguous"}};
  }

  /// between to x.
  void feed_forward(const LayerMemory& layer) {
    norm(memory_.between, layer.inner_norm);
    product(config_.intermediate, config_.hidden, {{"activation", "silu"}, {"gate", "stacked"}},
            {{"a", memory_.normal}, {"b", layer.gate_up}, {"d", memory_.inner}});
    product(
        config_.hidden, config_.intermediate, {{"residual", "add"}},
        {{"a", memory_.inner}, {"b", layer.down}, {"residual", memory_.between}, {"d", memory_.x}});
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
