#include "examples/decode/step.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <vector>

#include "examples/decode/model.h"
#include "examples/decode/reference.h"
#include "tests/examples/decode/host_step.h"
#include "tests/examples/decode/tiny_model.h"
#include "tests/temp_dir.h"
#include <kernwright/service.h>

namespace decode {
namespace {

/// A step of a tiny model in the host's memory.
class HostDecoder {
 public:
  HostDecoder(const ModelConfig& config, const Ints& lengths, bool paged)
      : config_(config), lengths_(lengths) {
    weights_ = *read_model(config, random_source(3));
    shape_.batch = static_cast<std::int64_t>(lengths.size());
    shape_.capacity = *std::max_element(lengths.begin(), lengths.end()) + 8;
    shape_.all_tokens = shape_.batch * shape_.capacity;
    shape_.paged = paged;
    rope_ = rope_table(config, shape_.capacity);
    for (std::int64_t page = shape_.batch * shape_.table_columns(); paged && page > 0; --page) {
      page_table_.push_back(static_cast<std::int32_t>(page - 1));
    }
    for (std::int64_t i = 0; i < shape_.batch; ++i) {
      tokens_.push_back(static_cast<std::int32_t>(7 * i + 5));
    }
    wire();
  }

  /// Whether the errors of a step are explained by rounding.
  bool step_is_right() {
    StepState state{tokens_, lengths_, keys_, values_};
    run_on_host(decode_step(config_, shape_, memory_));
    StepResult result;
    result["logits"] = {logits_};
    std::vector<float>& hidden = result["hidden"].emplace_back();
    for (const std::uint16_t bits : buffers_["x"]) hidden.push_back(to_float(bits));
    for (std::size_t l = 0; l < keys_.size(); ++l) {
      result["keys"].push_back(new_rows(keys_[l], state.lengths));
      result["values"].push_back(new_rows(values_[l], state.lengths));
    }
    for (std::size_t i = 0; i < lengths_.size(); ++i) {
      EXPECT_EQ(lengths_[i], state.lengths[i] + 1);
    }
    const auto reference = [&](bool rounded) {
      return reference_step(config_, weights_, shape_, page_table_, rope_, state, rounded);
    };
    const StepResult exact = reference(false), rounded = reference(true);
    const Errors errors = compare(result, tokens_, exact);
    const Errors rounding = compare(rounded, greedy_tokens(rounded, tokens_.size()), exact);
    EXPECT_GT(errors.relative.at("logits"), 0);
    return errors.explained_by(rounding);
  }

  ModelWeights& weights() { return weights_; }
  StepMemory& memory() { return memory_; }

 private:
  kw::ChainArg buffer(const std::string& name, std::int64_t columns) {
    Tensor& tensor = buffers_[name];
    tensor.assign(at(shape_.batch * columns), 0x7fc0);
    return static_cast<const void*>(tensor.data());
  }

  static kw::ChainArg pointer(const Tensor& tensor) {
    return static_cast<const void*>(tensor.data());
  }

  void wire() {
    memory_.tokens = static_cast<const void*>(tokens_.data());
    memory_.old_lengths = memory_.lengths = static_cast<const void*>(lengths_.data());
    memory_.cosine = static_cast<const void*>(rope_.cosine.data());
    memory_.sine = static_cast<const void*>(rope_.sine.data());
    memory_.page_table = static_cast<const void*>(page_table_.data());
    memory_.embedding = pointer(weights_.embedding);
    memory_.final_norm = pointer(weights_.final_norm);
    memory_.head = pointer(weights_.head_or_embedding());
    for (std::int64_t l = 0; l < 2 * config_.layers; ++l) {
      Tensor cache = random_tensor(shape_.cache_rows() * config_.kv_columns(), -1.7, 1.7,
                                   static_cast<std::uint64_t>(l));
      std::vector<bool> used(at(shape_.cache_rows()));
      for (std::int64_t i = 0; i < shape_.batch; ++i) {
        for (std::int64_t position = 0; position < lengths_[at(i)]; ++position) {
          used[at(shape_.cache_row(page_table_, i, position))] = true;
        }
      }
      for (std::size_t e = 0; e < cache.size(); ++e) {
        if (!used[e / at(config_.kv_columns())]) cache[e] = 0x7fc0;
      }
      (l % 2 == 0 ? keys_ : values_).push_back(std::move(cache));
    }
    for (std::size_t l = 0; l < weights_.layers.size(); ++l) {
      const LayerWeights& layer = weights_.layers[l];
      LayerMemory memory;
      memory.input_norm = pointer(layer.input_norm);
      memory.qkv = pointer(layer.qkv);
      memory.query_norm = pointer(layer.query_norm);
      memory.key_norm = pointer(layer.key_norm);
      memory.output = pointer(layer.output);
      memory.inner_norm = pointer(layer.inner_norm);
      memory.gate_up = pointer(layer.gate_up);
      memory.down = pointer(layer.down);
      memory.k_cache = pointer(keys_[l]);
      memory.v_cache = pointer(values_[l]);
      memory_.layers.push_back(memory);
    }
    memory_.x = buffer("x", config_.hidden);
    memory_.between = buffer("between", config_.hidden);
    memory_.q = buffer("q", config_.query_columns());
    memory_.attended = buffer("attended", config_.query_columns());
    memory_.k_new = buffer("k_new", config_.kv_columns());
    memory_.v_new = buffer("v_new", config_.kv_columns());
    memory_.inner = buffer("inner", config_.intermediate);
    logits_.resize(at(shape_.batch * config_.vocabulary));
    memory_.logits = static_cast<const void*>(logits_.data());
  }

  std::vector<float> new_rows(const Tensor& cache, const Ints& lengths) const {
    std::vector<float> rows;
    for (std::int64_t i = 0; i < shape_.batch; ++i) {
      const std::int64_t row = shape_.cache_row(page_table_, i, lengths[at(i)]);
      for (std::int64_t c = 0; c < config_.kv_columns(); ++c) {
        rows.push_back(to_float(cache[at(row * config_.kv_columns() + c)]));
      }
    }
    return rows;
  }

  ModelConfig config_;
  ModelWeights weights_;
  DecodeShape shape_;
  RopeTable rope_;
  Ints tokens_, lengths_, page_table_;
  std::vector<Tensor> keys_, values_;
  std::map<std::string, Tensor> buffers_;
  std::vector<float> logits_;
  StepMemory memory_;
};

std::vector<std::string> problems(const ModelConfig& config, const DecodeShape& shape) {
  StepMemory memory;
  memory.layers.resize(at(config.layers));
  std::vector<std::string> texts;
  for (const StepKernel& kernel : decode_step(config, shape, memory)) {
    texts.push_back(kernel.problem.text());
  }
  return texts;
}

TEST(DecodeStepTest, ItsKernelsComputeTheReferencesStep) {
  for (const bool qwen3 : {false, true}) {
    for (const bool paged : {false, true}) {
      const ModelConfig config = tiny_model(qwen3);
      HostDecoder decoder(config, {37, 0, 16}, paged);
      for (int i = 0; i < 3; ++i) {
        EXPECT_TRUE(decoder.step_is_right()) << config.model_type << (paged ? " paged" : "");
      }
    }
  }
}

TEST(DecodeStepTest, WhatIsWiredWronglyIsFound) {
  const ModelConfig config = tiny_model(true);
  const auto is_found = [&](const char* what, const auto& fault) {
    HostDecoder decoder(config, {37, 0, 16}, false);
    fault(decoder);
    EXPECT_FALSE(decoder.step_is_right()) << what;
  };
  using Decoder = HostDecoder;
  is_found("norms of q and k swapped", [](Decoder& decoder) {
    std::swap(decoder.memory().layers[1].query_norm, decoder.memory().layers[1].key_norm);
  });
  is_found("caches of two layers swapped", [](Decoder& decoder) {
    std::swap(decoder.memory().layers[1].v_cache, decoder.memory().layers[2].v_cache);
  });
  is_found("norms of a layer swapped", [](Decoder& decoder) {
    std::swap(decoder.memory().layers[2].input_norm, decoder.memory().layers[2].inner_norm);
  });
  is_found("the sine for the cosine",
           [](Decoder& decoder) { std::swap(decoder.memory().sine, decoder.memory().cosine); });
  is_found("one layer twice",
           [](Decoder& decoder) { decoder.memory().layers[1] = decoder.memory().layers[0]; });
  is_found("gates for what they open", [](Decoder& decoder) {
    Tensor& stacked = decoder.weights().layers[0].gate_up;
    static Tensor swapped;
    swapped = stacked;
    std::rotate(swapped.begin(), swapped.begin() + static_cast<std::ptrdiff_t>(swapped.size() / 2),
                swapped.end());
    decoder.memory().layers[0].gate_up = static_cast<const void*>(swapped.data());
  });
}

TEST(DecodeStepTest, AModelsProblemsAreThoseOfItsConfig) {
  ModelConfig config = tiny_model(true, 1);
  DecodeShape shape;
  shape.batch = 4;
  shape.capacity = 576;
  shape.all_tokens = 2304;
  const std::string sizes = "batch=4 heads=6 kv_heads=2 q_len=1 kv_len=576 head_dim=16";
  EXPECT_EQ(problems(config, shape),
            (std::vector<std::string>{
                "embedding tokens=4 hidden=64 vocabulary=100 dtype=bf16 lengths=advance",
                "matmul m=4 n=160 n_kv=32 k=64 dtype=bf16 split=qkv norm=rms",
                "attention " + sizes + " dtype=bf16 lengths=kv cache=contiguous append=norm_rope",
                "matmul m=4 n=64 k=96 dtype=bf16 residual=add",
                "matmul m=4 n=96 k=64 dtype=bf16 activation=silu gate=stacked norm=rms",
                "matmul m=4 n=64 k=96 dtype=bf16 residual=add",
                "matmul m=4 n=100 k=64 dtype=bf16 out=fp32 norm=rms",
                "argmax rows=4 columns=100 dtype=fp32",
            }));
  config = tiny_model(false, 2);
  shape.paged = true;
  shape.all_tokens = 1000;
  const std::vector<std::string> paged = problems(config, shape);
  EXPECT_EQ(paged.size(), 13U);
  EXPECT_EQ(paged[2], "attention " + sizes +
                          " kv_total=1000 page=16 dtype=bf16 lengths=kv cache=paged append=rope");
}

TEST(DecodeStepToolkitTest, AServiceHasAKernelWithTheseArgumentsForEveryProblem) {
  const kernwright::ScopedTempDir cache;
  kw::ServiceOptions options;
  options.cache = cache.path().string();
  options.sku = "h200";
  const kw::Result<kw::Service> service = kw::Service::open(options);
  ASSERT_TRUE(service) << service.error().message;
  for (const bool qwen3 : {false, true}) {
    const ModelConfig config = tiny_model(qwen3, 1);
    DecodeShape shape;
    shape.batch = 3;
    shape.capacity = 96;
    shape.all_tokens = 200;
    shape.paged = qwen3;
    StepMemory memory;
    memory.layers.resize(1);
    for (const StepKernel& step : decode_step(config, shape, memory)) {
      const kw::Result<kw::Kernel> kernel = service->get_best_kernel(step.problem);
      ASSERT_TRUE(kernel) << kernel.error().message;
      const kw::Result<std::vector<kw::ChainArg>> arguments = arguments_in_order(step, *kernel);
      EXPECT_TRUE(arguments) << arguments.error().message;
    }
  }
}

}  // namespace
}  // namespace decode
