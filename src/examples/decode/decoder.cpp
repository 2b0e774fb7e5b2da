#include "decoder.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace decode {
namespace {

constexpr std::uint16_t kNan = 0x7fc0;
/// Kernels of a problem that `Chain::tune` chooses from.
constexpr std::size_t kAlternatives = 8;

Ints shuffled_pages(std::int64_t count, std::uint64_t seed) {
  Ints pages(at(count));
  std::iota(pages.begin(), pages.end(), 0);
  std::shuffle(pages.begin(), pages.end(), std::mt19937_64(seed));
  return pages;
}

}  // namespace

kw::Result<Decoder> Decoder::make(Gpu& gpu, const kw::Service& service, const ModelConfig& config,
                                  const ModelWeights& weights, const DecodeShape& shape,
                                  const Ints& lengths, std::uint64_t seed) {
  Decoder decoder(gpu, config, shape);
  kw::ChainBuilder builder;
  const StepMemory memory = decoder.allocate(weights, lengths, seed, builder);
  // A problem is looked up or tuned the first time; all layers have the same kernels.
  std::map<std::string, std::vector<kw::Kernel>> kernels;
  for (const StepKernel& step : decode_step(config, shape, memory)) {
    std::vector<kw::Kernel>& alternatives = kernels[step.problem.text()];
    if (alternatives.empty()) {
      kw::Result<std::vector<kw::Kernel>> found =
          service.get_best_kernels(step.problem, kAlternatives);
      if (!found) return found.error();
      alternatives = std::move(*found);
    }
    const kw::Result<std::vector<kw::ChainArg>> arguments =
        arguments_in_order(step, alternatives.front());
    if (!arguments) return arguments.error();
    builder.add(alternatives, arguments->data(), arguments->size());
  }
  kw::Result<kw::Chain> chain = builder.build();
  if (!chain) return chain.error();
  decoder.chain_ = std::move(*chain);
  return decoder;
}

StepMemory Decoder::allocate(const ModelWeights& weights, const Ints& lengths, std::uint64_t seed,
                             kw::ChainBuilder& builder) {
  StepMemory memory;
  const auto upload = [&](const Tensor& tensor) -> kw::ChainArg {
    return tensor.empty() ? kw::ChainArg(nullptr) : kw::ChainArg(gpu_->upload(tensor));
  };
  const auto pointer = [](Address address) { return reinterpret_cast<const void*>(address); };

  tokens_ = gpu_->upload(Ints(lengths.size()));
  lengths_ = gpu_->upload(lengths);
  other_lengths_ = gpu_->upload(lengths);
  memory.tokens = tokens_;
  // Parameters, because the lengths advance only if both are the same memory.
  memory.old_lengths = builder.parameter(pointer(lengths_));
  memory.lengths = builder.parameter(pointer(lengths_));
  const RopeTable rope = rope_table(config_, shape_.capacity);
  memory.cosine = gpu_->upload(rope.cosine);
  memory.sine = gpu_->upload(rope.sine);
  if (shape_.paged) {
    page_table_ = shuffled_pages(shape_.batch * shape_.table_columns(), seed);
    memory.page_table = gpu_->upload(page_table_);
  }

  memory.embedding = upload(weights.embedding);
  memory.final_norm = upload(weights.final_norm);
  memory.head = config_.tied_head ? memory.embedding : upload(weights.head);
  std::vector<bool> has_token(at(shape_.cache_rows()));
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    for (std::int64_t position = 0; position < lengths[i]; ++position) {
      has_token[at(shape_.cache_row(page_table_, static_cast<std::int64_t>(i), position))] = true;
    }
  }
  const auto cache = [&] {
    const auto columns = static_cast<std::ptrdiff_t>(config_.kv_columns());
    Tensor drawn = random_tensor(shape_.cache_rows() * columns, -1.732, 1.732, ++seed);
    for (std::size_t row = 0; row < has_token.size(); ++row) {
      const auto begin = drawn.begin() + static_cast<std::ptrdiff_t>(row) * columns;
      if (!has_token[row]) std::fill(begin, begin + columns, kNan);
    }
    return gpu_->upload(drawn);
  };
  for (const LayerWeights& layer : weights.layers) {
    keys_.push_back(cache());
    values_.push_back(cache());
    LayerMemory on_device;
    on_device.input_norm = upload(layer.input_norm);
    on_device.qkv = upload(layer.qkv);
    on_device.query_norm = upload(layer.query_norm);
    on_device.key_norm = upload(layer.key_norm);
    on_device.output = upload(layer.output);
    on_device.inner_norm = upload(layer.inner_norm);
    on_device.gate_up = upload(layer.gate_up);
    on_device.down = upload(layer.down);
    on_device.k_cache = keys_.back();
    on_device.v_cache = values_.back();
    memory.layers.push_back(on_device);
  }

  const auto bytes = [&](std::int64_t columns) { return 2 * shape_.batch * columns; };
  memory.between = builder.buffer(bytes(config_.hidden));
  for (kw::ChainArg* heads : {&memory.q, &memory.attended}) {
    *heads = builder.buffer(bytes(config_.query_columns()));
  }
  for (kw::ChainArg* heads : {&memory.k_new, &memory.v_new}) {
    *heads = builder.buffer(bytes(config_.kv_columns()));
  }
  memory.inner = builder.buffer(bytes(config_.intermediate));
  // The host reads these.
  memory.x = x_ = gpu_->allocate(at(bytes(config_.hidden)));
  memory.logits = logits_ = gpu_->allocate(at(2 * bytes(config_.vocabulary)));
  return memory;
}

kw::Result<std::vector<kw::ChainTime>> Decoder::tune(const Ints& lengths) {
  // It launches the step thousands of times, which must not make the sequences longer.
  set_lengths(lengths);
  const auto* own = reinterpret_cast<const void*>(lengths_);
  kw::Result<void> bound = chain_->rebind({own, reinterpret_cast<const void*>(other_lengths_)});
  if (!bound) return bound.error();
  kw::Result<std::vector<kw::ChainTime>> times = chain_->tune(stream_);
  if (!times) return times;
  bound = chain_->rebind({own, own});
  if (!bound) return bound.error();
  return times;
}

kw::Result<double> Decoder::time_us(int count) {
  kw::Result<void> launched;
  const double us = gpu_->elapsed_us(stream_, [&] {
    for (int i = 0; i < count && launched; ++i) launched = step();
  });
  if (!launched) return launched.error();
  return us;
}

StepState Decoder::state() const {
  StepState state;
  state.tokens = numbers(tokens_);
  state.lengths = numbers(lengths_);
  const std::size_t count = at(shape_.cache_rows() * config_.kv_columns());
  for (std::size_t l = 0; l < keys_.size(); ++l) {
    state.keys.push_back(gpu_->download<std::uint16_t>(keys_[l], count));
    state.values.push_back(gpu_->download<std::uint16_t>(values_[l], count));
  }
  return state;
}

StepResult Decoder::result(const Ints& lengths) const {
  const auto floats = [&](Address address, std::int64_t count) {
    std::vector<float> values;
    for (const std::uint16_t bits : gpu_->download<std::uint16_t>(address, at(count))) {
      values.push_back(to_float(bits));
    }
    return values;
  };
  StepResult result;
  result["logits"] = {gpu_->download<float>(logits_, at(shape_.batch * config_.vocabulary))};
  result["hidden"] = {floats(x_, shape_.batch * config_.hidden)};
  const std::int64_t columns = config_.kv_columns();
  for (const auto& [part, caches] : {std::pair("keys", &keys_), std::pair("values", &values_)}) {
    for (const Address cache : *caches) {
      std::vector<float>& rows = result[part].emplace_back();
      for (std::int64_t i = 0; i < shape_.batch; ++i) {
        const std::int64_t row = shape_.cache_row(page_table_, i, lengths[at(i)]);
        const auto values = floats(cache + static_cast<Address>(2 * row * columns), columns);
        rows.insert(rows.end(), values.begin(), values.end());
      }
    }
  }
  return result;
}

}  // namespace decode
