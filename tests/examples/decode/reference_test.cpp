#include "examples/decode/reference.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

#include "examples/decode/model.h"
#include "tests/examples/decode/tiny_model.h"

namespace decode {
namespace {

Tensor of(const std::vector<float>& values) {
  Tensor tensor;
  for (const float value : values) tensor.push_back(to_bf16(value));
  return tensor;
}

/// A matrix of `rows` rows and 8 columns with ones where they are said.
Tensor ones(std::size_t rows, const std::vector<std::pair<std::size_t, std::size_t>>& places) {
  std::vector<float> values(rows * 8);
  for (const auto& [row, column] : places) values[row * 8 + column] = 1;
  return of(values);
}

/// One layer, one head of eight elements, and matrices that have so few elements that the step can
/// be written down.
TEST(DecodeReferenceTest, AStepIsWhatItIsByHand) {
  for (const bool query_norm : {false, true}) {
    ModelConfig config;
    config.hidden = config.head_dim = config.intermediate = config.vocabulary = 8;
    config.layers = config.heads = config.kv_heads = 1;
    config.norm_epsilon = 1e-12;
    config.rope_theta = 10000;
    config.query_norm = query_norm;

    std::vector<std::pair<std::size_t, std::size_t>> identity, three_identities;
    for (std::size_t i = 0; i < 8; ++i) identity.emplace_back(i, i);
    for (std::size_t i = 0; i < 24; ++i) three_identities.emplace_back(i, i % 8);
    ModelWeights weights;
    weights.embedding = of(std::vector<float>(24));
    weights.embedding[16] = to_bf16(2);  // token 2 is 2 e0
    LayerWeights layer;
    layer.input_norm = layer.inner_norm = of(std::vector<float>(8, 1));
    layer.query_norm = layer.key_norm = of(std::vector<float>(8, 0.5));
    layer.qkv = ones(24, three_identities);
    layer.output = ones(8, identity);
    layer.gate_up = ones(16, {{0, 0}, {8, 1}});  // silu(n0) n1
    layer.down = ones(8, {{2, 0}});
    weights.layers = {layer};
    weights.final_norm = of(std::vector<float>(8, 2));
    weights.head = ones(8, identity);

    DecodeShape shape;
    shape.capacity = 2;
    StepState state;
    state.tokens = {2};
    state.lengths = {1};
    state.keys = {of(std::vector<float>(16))};  // the logit of the old token is 0
    state.values = {of(std::vector<float>(16))};
    state.values[0][1] = to_bf16(4);  // its value 4 e1
    const StepResult result =
        reference_step(config, weights, shape, {}, rope_table(config, 2), state);

    const double root8 = std::sqrt(8.0);
    const double size = query_norm ? root8 / 2 : root8;  // of q and k, which are both n0 e0
    EXPECT_NEAR(result.at("keys")[0][0], size * std::cos(1.0), 1e-5);
    EXPECT_NEAR(result.at("keys")[0][4], size * std::sin(1.0), 1e-5);
    EXPECT_NEAR(result.at("values")[0][0], root8, 1e-5);
    const double logit = size * size / root8;
    const double share = std::exp(logit) / (1 + std::exp(logit));
    const double x0 = 2 + share * root8, x1 = (1 - share) * 4;
    const double inner_factor = 1 / std::sqrt((x0 * x0 + x1 * x1) / 8);
    const double gate = x0 * inner_factor;
    const double x2 = gate / (1 + std::exp(-gate)) * x1 * inner_factor;
    const double factor = 2 / std::sqrt((x0 * x0 + x1 * x1 + x2 * x2) / 8);
    const std::vector<double> expected{x0, x1, x2, 0, 0, 0, 0, 0};
    for (std::size_t c = 0; c < 8; ++c) {
      EXPECT_NEAR(result.at("hidden")[0][c], expected[c], 1e-4) << c;
      EXPECT_NEAR(result.at("logits")[0][c], expected[c] * factor, 1e-4) << c;
    }
  }
}

TEST(DecodeReferenceTest, ErrorsAreThoseOfTheWorstSequenceAndLayer) {
  StepResult reference;
  reference["logits"] = {{0, 3, 4, 0, 6, 8}};
  reference["keys"] = {{1, 1}, {1, 1}};
  reference["values"] = {{1, 1}, {1, 1}};
  StepResult result = reference;
  Errors rounding = compare(result, {2, 2}, reference);
  EXPECT_TRUE(rounding.explained_by(rounding)) << "nothing is off";
  result["logits"][0][5] = 8.5;
  result["keys"][1][0] = 1.25;
  const Errors errors = compare(result, {2, 2}, reference);
  EXPECT_DOUBLE_EQ(errors.relative.at("logits"), 0.05);
  EXPECT_DOUBLE_EQ(errors.relative.at("keys"), 0.25);
  EXPECT_EQ(errors.relative.at("values"), 0);
  rounding.relative["logits"] = 0.05 / Errors::kOverRounding;
  EXPECT_FALSE(errors.explained_by(rounding));
  rounding.relative["keys"] = 0.25 / Errors::kOverRounding;
  EXPECT_TRUE(errors.explained_by(rounding));
  rounding.relative["logits"] *= 0.99;
  EXPECT_FALSE(errors.explained_by(rounding));
  result["values"][0][1] = std::numeric_limits<float>::quiet_NaN();
  rounding.relative = {{"logits", 1e9}, {"keys", 1e9}, {"values", 1e9}};
  EXPECT_FALSE(compare(result, {2, 2}, reference).explained_by(rounding));
}

TEST(DecodeReferenceTest, ATokenIsRightWhereAGapExplainsIt) {
  StepResult reference;
  reference["logits"] = {{4, 3, 0, 0}};
  StepResult result = reference;
  EXPECT_EQ(compare(result, {1}, reference).wrong_tokens, 1) << "not by its own logits";
  result["logits"] = {{4, 4.5, 0, 0}};
  Errors errors = compare(result, {1}, reference);
  EXPECT_EQ(errors.wrong_tokens, 0);
  EXPECT_EQ(errors.other_tokens, 1);
  EXPECT_DOUBLE_EQ(errors.gap, 0.4) << "1 over the root mean square, 2.5";
  Errors rounding;
  rounding.relative["logits"] = 0.4 / (Errors::kOverRounding * Errors::kGapOverLogits);
  errors.relative.clear();
  EXPECT_TRUE(errors.explained_by(rounding));
  rounding.relative["logits"] *= 0.99;
  EXPECT_FALSE(errors.explained_by(rounding));
  result["logits"] = {{4, 4, 0, 0}};
  EXPECT_EQ(compare(result, {0}, reference).wrong_tokens, 0) << "the first of two";
  EXPECT_EQ(compare(result, {1}, reference).wrong_tokens, 1);
}

TEST(DecodeModelTest, RandomTensorsHaveTheirSizesAndDependOnTheirNames) {
  const ModelConfig config = tiny_model(true);
  const ModelWeights weights = *read_model(config, random_source(1));
  EXPECT_EQ(weights.embedding.size(), 6400U);
  EXPECT_TRUE(weights.head.empty());
  EXPECT_EQ(weights.layers[2].qkv.size(), 160U * 64);
  EXPECT_EQ(weights.layers[2].gate_up.size(), 192U * 64);
  EXPECT_NE(weights.layers[0].qkv, weights.layers[1].qkv);
  EXPECT_NE(weights.layers[0].query_norm, weights.layers[0].key_norm);
  EXPECT_EQ(weights.layers[1].down, read_model(config, random_source(1))->layers[1].down);
  EXPECT_NE(weights.layers[1].down, read_model(config, random_source(2))->layers[1].down);
  double squares = 0;
  for (const std::uint16_t bits : weights.layers[0].qkv) squares += std::pow(to_float(bits), 2);
  EXPECT_NEAR(squares / 160, 1, 0.05) << "rows keep the size of what they are multiplied with";
  for (const std::uint16_t bits : weights.final_norm) {
    EXPECT_GE(to_float(bits), 0.5);
    EXPECT_LE(to_float(bits), 1.5);
  }
}

TEST(DecodeModelTest, TensorsThatShareTheirInputLieOneBelowTheOther) {
  const ModelConfig config = tiny_model(false, 1);
  std::vector<std::string> names;
  const ModelWeights weights =
      *read_model(config, [&](const std::string& name, const std::vector<std::int64_t>& shape) {
        names.push_back(name);
        const std::int64_t count = shape.size() == 1 ? shape[0] : shape[0] * shape[1];
        return kw::Result<Tensor>(
            Tensor(static_cast<std::size_t>(count), static_cast<std::uint16_t>(names.size())));
      });
  EXPECT_EQ(names,
            (std::vector<std::string>{
                "model.embed_tokens.weight", "model.layers.0.input_layernorm.weight",
                "model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.k_proj.weight",
                "model.layers.0.self_attn.v_proj.weight", "model.layers.0.self_attn.o_proj.weight",
                "model.layers.0.post_attention_layernorm.weight",
                "model.layers.0.mlp.gate_proj.weight", "model.layers.0.mlp.up_proj.weight",
                "model.layers.0.mlp.down_proj.weight", "model.norm.weight", "lm_head.weight"}));
  const Tensor& qkv = weights.layers[0].qkv;
  EXPECT_EQ(qkv[6143], 3);
  EXPECT_EQ(qkv[6144], 4) << "96 rows of 64";
  EXPECT_EQ(qkv[8192], 5);
  EXPECT_EQ(weights.layers[0].gate_up[6144], 9);
}

TEST(DecodeModelTest, WhatASourceLacksIsNamed) {
  const kw::Result<ModelWeights> read = read_model(
      tiny_model(true),
      [](const std::string& name, const std::vector<std::int64_t>& shape) -> kw::Result<Tensor> {
        if (name == "model.layers.1.self_attn.k_norm.weight") {
          return kw::Error{kw::ErrorCode::not_found, name + " " + std::to_string(shape[0])};
        }
        return Tensor(1);
      });
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().message, "model.layers.1.self_attn.k_norm.weight 16");
}

}  // namespace
}  // namespace decode
