#include "examples/decode/config.h"

#include <cmath>
#include <gtest/gtest.h>
#include <span>
#include <string>

#include <nlohmann/json.hpp>

#include "model/files/embedded_files.h"

namespace kernwright {
std::span<const EmbeddedFile> embedded_decode_configs();
}

namespace decode {
namespace {

using nlohmann::json;

/// The config that lies beside the program's source.
json sample(const std::string& name) {
  for (const kernwright::EmbeddedFile& file : kernwright::embedded_decode_configs()) {
    if (file.path == name + ".json") return json::parse(file.content);
  }
  return {};
}

kw::Result<ModelConfig> parse(const json& document) {
  return parse_config(document.dump(), "config.json");
}

/// The message of the config that is the sample with `field` as `value`; a null takes it away.
std::string refusal(const std::string& name, const std::string& field, const json& value) {
  json document = sample(name);
  document[field] = value;
  const kw::Result<ModelConfig> config = parse(document);
  return config ? "accepted" : config.error().message;
}

TEST(DecodeConfigTest, PublicModelsAreRead) {
  const kw::Result<ModelConfig> qwen = parse(sample("qwen3-0.6b"));
  ASSERT_TRUE(qwen) << qwen.error().message;
  EXPECT_EQ(qwen->qkv_columns(), 4096);
  EXPECT_TRUE(qwen->query_norm);
  EXPECT_TRUE(qwen->tied_head);
  EXPECT_EQ(qwen->norm_epsilon, 1e-6);
  EXPECT_EQ(qwen->rope_theta, 1e6);
  EXPECT_FALSE(qwen->rope_scaling);
  const kw::Result<ModelConfig> llama = parse(sample("llama-3.2-1b"));
  ASSERT_TRUE(llama) << llama.error().message;
  EXPECT_EQ(llama->qkv_columns(), 3072);
  EXPECT_FALSE(llama->query_norm);
  ASSERT_TRUE(llama->rope_scaling);
  EXPECT_EQ(llama->rope_scaling->factor, 32);
  EXPECT_EQ(llama->rope_scaling->original_positions, 8192);
}

TEST(DecodeConfigTest, WhatIsLeftOutHasTheDefaultOfItsType) {
  json document = sample("llama-3.2-1b");
  for (const char* field : {"head_dim", "num_key_value_heads", "rope_theta", "rope_scaling",
                            "rms_norm_eps", "tie_word_embeddings"}) {
    document.erase(field);
  }
  const kw::Result<ModelConfig> llama = parse(document);
  ASSERT_TRUE(llama) << llama.error().message;
  EXPECT_EQ(llama->head_dim, 64);
  EXPECT_EQ(llama->kv_heads, 32);
  EXPECT_EQ(llama->rope_theta, 10000);
  EXPECT_EQ(llama->norm_epsilon, 1e-6);
  EXPECT_FALSE(llama->tied_head);
  document = sample("qwen3-0.6b");
  document.erase("head_dim");
  EXPECT_EQ(parse(document)->head_dim, 128);
}

TEST(DecodeConfigTest, RotationsMayBeInOneObject) {
  json document = sample("llama-3.2-1b");
  json rope = document["rope_scaling"];
  rope["rope_theta"] = 500000.0;
  document.erase("rope_scaling");
  document.erase("rope_theta");
  document["rope_parameters"] = rope;
  const kw::Result<ModelConfig> llama = parse(document);
  ASSERT_TRUE(llama) << llama.error().message;
  EXPECT_EQ(llama->rope_theta, 500000);
  EXPECT_EQ(llama->rope_scaling->high_frequency_factor, 4);
}

TEST(DecodeConfigTest, WhatIsNotDecodedIsRefusedByItsField) {
  const auto contains = [](const std::string& text, const std::string& part) {
    EXPECT_TRUE(text.starts_with("config.json:")) << text;
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  const std::string qwen = "qwen3-0.6b", llama = "llama-3.2-1b";
  contains(refusal(qwen, "model_type", 3), "model_type must be a string, is integer");
  contains(refusal(qwen, "model_type", "gpt2"), "model_type is \"gpt2\", only");
  contains(refusal(qwen, "num_hidden_layers", nullptr),
           "num_hidden_layers must be an integer from 1 to 1073741824, is null");
  contains(refusal(qwen, "num_hidden_layers", "28"), "num_hidden_layers must be an integer");
  contains(refusal(qwen, "vocab_size", 0), "vocab_size must be an integer from 1 to");
  contains(refusal(qwen, "vocab_size", std::int64_t{1} << 40), "is 1099511627776");
  contains(refusal(qwen, "num_key_value_heads", 5),
           "num_attention_heads 16 is no multiple of num_key_value_heads 5");
  contains(refusal(qwen, "head_dim", 100), "head_dim 100 is no multiple of 8");
  contains(refusal(qwen, "rms_norm_eps", -1), "rms_norm_eps must be a number above 0, is -1");
  contains(refusal(qwen, "tie_word_embeddings", 1), "tie_word_embeddings must be true or false");
  contains(refusal(qwen, "hidden_act", "gelu"), "hidden_act is \"gelu_erf\", only \"silu\"");
  contains(refusal(qwen, "attention_bias", true), "attention_bias or mlp_bias is true");
  contains(refusal(llama, "mlp_bias", true), "attention_bias or mlp_bias is true");
  contains(refusal(llama, "quantization_config", {{"quant_method", "fp8"}}), "quantization_config");
  contains(refusal(llama, "rope_scaling", {{"rope_type", "yarn"}, {"factor", 4}}),
           "rope_type is \"yarn\", only");
  contains(refusal(llama, "rope_scaling", {{"rope_type", "llama3"}, {"factor", 4}}),
           "low_freq_factor is missing");
  json document = sample(llama);
  document.erase("head_dim");
  document["hidden_size"] = 2050;
  EXPECT_EQ(parse(document).error().message,
            "config.json: hidden_size 2050 is no multiple of num_attention_heads 32");
  EXPECT_EQ(parse_config("[1]", "a").error().message, "a:1: a config is an object, is array");
}

TEST(DecodeConfigTest, AWindowIsRefusedWhereItIsShorterThanASequence) {
  json document = sample("qwen3-0.6b");
  document["use_sliding_window"] = true;
  document["sliding_window"] = 1024;
  document["max_window_layers"] = 28;
  EXPECT_TRUE(check_tokens(*parse(document), 2000)) << "no layer has it";
  document["max_window_layers"] = 20;
  EXPECT_TRUE(check_tokens(*parse(document), 1024));
  EXPECT_EQ(check_tokens(*parse(document), 1025).error().message,
            "sliding_window: 1024 is less than the 1025 tokens of a sequence");
  EXPECT_EQ(check_tokens(*parse(sample("qwen3-0.6b")), 40961).error().message,
            "max_position_embeddings: 40960 is less than the 40961 tokens of a sequence");
}

TEST(DecodeConfigTest, AStepHasTheBytesOfItsWeightsAndTokens) {
  const auto bytes = [](const char* name) { return step_bytes(*parse(sample(name)), 1, 0); };
  EXPECT_EQ(bytes("qwen3-0.6b").weights, 1'192'099'840);
  EXPECT_EQ(bytes("qwen3-0.6b").cache, 114'688);
  EXPECT_EQ(bytes("qwen3-0.6b").embedding, 2048);
  EXPECT_EQ(bytes("llama-3.2-1b").weights, 2'471'628'800);
  EXPECT_EQ(bytes("llama-3.2-1b").cache, 32'768);
  EXPECT_EQ(bytes("qwen3-8b").weights, 15'136'811'008);
  EXPECT_EQ(bytes("qwen3-8b").cache, 147'456);
  const StepBytes four = step_bytes(*parse(sample("qwen3-0.6b")), 4, 2048);
  EXPECT_EQ(four.cache, 2052 * std::int64_t{114'688});
  EXPECT_EQ(four.all(), four.weights + 8192 + four.cache);
}

TEST(DecodeConfigTest, RotationsHaveTheFrequenciesOfTheBase) {
  ModelConfig config;
  config.head_dim = 8;
  config.rope_theta = 10000;
  const RopeTable table = rope_table(config, 3);
  ASSERT_EQ(table.cosine.size(), 12U);
  for (int pair = 0; pair < 4; ++pair) {
    const double angle = 2 * std::pow(10.0, -pair);
    EXPECT_FLOAT_EQ(table.cosine[static_cast<std::size_t>(8 + pair)],
                    static_cast<float>(std::cos(angle)));
    EXPECT_FLOAT_EQ(table.sine[static_cast<std::size_t>(8 + pair)],
                    static_cast<float>(std::sin(angle)));
  }
}

// By wavelengths, as transformers computes it.
TEST(DecodeConfigTest, SlowRotationsAreStretched) {
  const ModelConfig config = *parse(sample("llama-3.2-1b"));
  const RopeTable table = rope_table(config, 2);
  int kept = 0, stretched = 0, between = 0;
  for (int pair = 0; pair < 32; ++pair) {
    const double plain = 1 / std::pow(500000.0, pair / 32.0);
    const double wavelength = 2 * std::acos(-1.0) / plain;
    double expected = plain;
    if (wavelength > 8192) {
      expected = plain / 32;
      ++stretched;
    } else if (wavelength >= 8192.0 / 4) {
      const double smooth = (8192 / wavelength - 1) / (4 - 1);
      expected = (1 - smooth) * plain / 32 + smooth * plain;
      ++between;
    } else {
      ++kept;
    }
    EXPECT_NEAR(table.sine[static_cast<std::size_t>(32 + pair)], std::sin(expected),
                1e-6 * expected);
  }
  EXPECT_EQ(kept, 15);
  EXPECT_EQ(between, 3);
  EXPECT_EQ(stretched, 14);
}

}  // namespace
}  // namespace decode
