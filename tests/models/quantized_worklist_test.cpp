#include <algorithm>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tests/models/model_configs.h"

namespace kernwright {
namespace {

class QuantizedWorklistTest : public ModelWorklistTest {};

TEST_F(QuantizedWorklistTest, WeightsInFp8WithAScaleATensorGiveFp8Products) {
  const Texts expected = {
      "attention batch=1 heads=32 kv_heads=8 q_len=16 kv_len=16 head_dim=128 dtype=bf16 "
      "mask=causal",
      "matmul m=16 n=6144 k=4096 dtype=fp8_e4m3 out=bf16 scaling=alpha",
      "matmul m=16 n=6144 k=4096 n_kv=1024 dtype=fp8_e4m3 out=bf16 scaling=alpha split=qkv",
      "matmul m=16 n=1024 k=4096 dtype=fp8_e4m3 out=bf16 scaling=alpha",
      "matmul m=16 n=4096 k=4096 dtype=fp8_e4m3 out=bf16 scaling=alpha",
      "rope tokens=16 heads=32 kv_heads=8 head_dim=128 dtype=bf16",
      "rope tokens=16 heads=32 kv_heads=8 head_dim=128 dtype=bf16 append=cache",
      "matmul m=16 n=28672 k=4096 dtype=fp8_e4m3 out=bf16 scaling=alpha",
      "gated_activation rows=16 columns=14336 dtype=bf16 out=fp8_e4m3 layout=packed",
      "matmul m=16 n=4096 k=14336 dtype=fp8_e4m3 out=bf16 scaling=alpha",
      "matmul m=16 n=128256 k=4096 dtype=bf16",
      "rmsnorm rows=16 columns=4096 dtype=bf16 out=fp8_e4m3",
      "rmsnorm rows=16 columns=4096 dtype=bf16 out=fp8_e4m3 residual=add",
      // In front of the head, which is not quantised.
      "rmsnorm rows=16 columns=4096 dtype=bf16 residual=add"};
  for (
      const char* how :
      {R"({"activation_scheme": "static", "ignored_layers": ["lm_head"], "quant_method": "fp8"})",
       R"({"activation_scheme": "static", "quant_method": "fp8", "weight_block_size": null})",
       R"({"quant_algo": "FP8", "quant_method": "modelopt", "ignore": ["lm_head"]})",
       R"({"quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"],
            "config_groups": {"group_0": {"targets": ["Linear"],
              "weights": {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": false},
              "input_activations": {"num_bits": 8, "type": "float", "strategy": "tensor",
                                    "dynamic": false}}}})"}) {
    EXPECT_EQ(texts(with(kLlama, std::string("\"quantization_config\": ") + how)), sorted(expected))
        << how;
  }
}

TEST_F(QuantizedWorklistTest, WeightsInFp8WithScalesOfBlocksGiveScaledProducts) {
  for (const char* how : {R"({"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
                              "weight_block_size": [128, 128]})",
                          R"({"quant_method": "fp8"})"}) {
    const std::string quantized = std::string("\"quantization_config\": ") + how;
    const Texts dense = texts(with(kLlama, quantized));
    EXPECT_EQ(dense.size(), 17U);
    for (const char* text :
         {"rmsnorm rows=16 columns=4096 dtype=bf16 out=fp8_e4m3 quantize=block",
          "rmsnorm rows=16 columns=4096 dtype=bf16 out=fp8_e4m3 residual=add quantize=block",
          "gated_activation rows=16 columns=14336 dtype=bf16 out=fp8_e4m3 layout=packed "
          "quantize=block",
          "quantize_rows rows=16 columns=4096 dtype=bf16 out=fp8_e4m3 scaling=block",
          "quantize_rows rows=16 columns=14336 dtype=bf16 out=fp8_e4m3 scaling=block"}) {
      EXPECT_TRUE(std::ranges::find(dense, text) != dense.end()) << text;
    }
    for (const char* product :
         {"n=6144 k=4096 dtype=fp8_e4m3 out=bf16 scaling=block",
          "n=6144 k=4096 n_kv=1024 dtype=fp8_e4m3 out=bf16 scaling=block split=qkv",
          "n=4096 k=14336 dtype=fp8_e4m3 out=bf16 scaling=block",
          "n=14336 k=4096 dtype=fp8_e4m3 out=bf16 scaling=block activation=silu gate=stacked",
          "n=128256 k=4096 dtype=bf16"}) {
      EXPECT_EQ(std::count(dense.begin(), dense.end(), std::string("matmul m=16 ") + product), 1)
          << product;
    }
    EXPECT_EQ(problems_of("grouped_matmul", with(kDeepseekV3, quantized), {16}, {}, 8),
              (Texts{"groups=256 rows=128 n=256 k=7168 dtype=fp8_e4m3 out=bf16 activation=silu "
                     "gate=stacked",
                     "groups=256 rows=128 n=7168 k=256 dtype=fp8_e4m3 out=bf16"}));
    EXPECT_EQ(sorted(problems_of("quantize_rows", with(kDeepseekV3, quantized), {16}, {}, 8)),
              sorted({"rows=16 columns=512 dtype=bf16 out=fp8_e4m3 scaling=block",
                      "rows=16 columns=2048 dtype=bf16 out=fp8_e4m3 scaling=block",
                      "rows=16 columns=2304 dtype=bf16 out=fp8_e4m3 scaling=block",
                      "rows=16 columns=256 dtype=bf16 out=fp8_e4m3 scaling=block",
                      "rows=16 columns=7168 dtype=bf16 out=fp8_e4m3 scaling=block",
                      "rows=128 columns=256 dtype=bf16 out=fp8_e4m3 scaling=block"}));
  }
}

TEST_F(QuantizedWorklistTest, EightBitsByRowsAreQuantisedInWhatIsBeforeAProduct) {
  for (const auto& [type, codes] : {std::pair{"int", "int8"}, std::pair{"float", "fp8_e4m3"}}) {
    const std::string config =
        with(kLlama,
             concat(R"("quantization_config": {"quant_method": "compressed-tensors", "format": ")",
                    type, R"(-quantized", "ignore": ["lm_head"], "config_groups": {"group_0": {
                       "weights": {"num_bits": 8, "type": ")",
                    type, R"(", "strategy": "channel", "dynamic": false, "symmetric": true},
                       "input_activations": {"num_bits": 8, "type": ")",
                    type, R"(", "strategy": "token", "dynamic": true, "symmetric": true}}}})"));
    const std::string product = concat(" dtype=", codes, " out=bf16 scaling=row");
    const std::string quantised = concat(" dtype=bf16 out=", codes);
    EXPECT_EQ(
        texts(config),
        sorted({"attention batch=1 heads=32 kv_heads=8 q_len=16 kv_len=16 head_dim=128 dtype=bf16 "
                "mask=causal",
                concat("matmul m=16 n=6144 k=4096", product),
                concat("matmul m=16 n=6144 k=4096 n_kv=1024", product, " split=qkv"),
                concat("matmul m=16 n=1024 k=4096", product),
                concat("matmul m=16 n=4096 k=4096", product),
                concat("quantize_rows rows=16 columns=4096", quantised),
                "rope tokens=16 heads=32 kv_heads=8 head_dim=128 dtype=bf16",
                "rope tokens=16 heads=32 kv_heads=8 head_dim=128 dtype=bf16 append=cache",
                concat("matmul m=16 n=28672 k=4096", product),
                concat("matmul m=16 n=14336 k=4096", product, " activation=silu gate=stacked"),
                concat("gated_activation rows=16 columns=14336", quantised,
                       " layout=packed quantize=row"),
                concat("quantize_rows rows=16 columns=14336", quantised),
                concat("matmul m=16 n=4096 k=14336", product),
                "matmul m=16 n=128256 k=4096 dtype=bf16",
                concat("rmsnorm rows=16 columns=4096", quantised, " quantize=row"),
                concat("rmsnorm rows=16 columns=4096", quantised, " residual=add quantize=row"),
                "rmsnorm rows=16 columns=4096 dtype=bf16 residual=add"}))
        << type;
  }
}

TEST_F(QuantizedWorklistTest, BlocksOfCompressedTensorsAreThoseOfFp8) {
  const auto of = [](std::string_view block, std::string_view group) {
    return with(
        kLlama,
        concat(R"("quantization_config": {"quant_method": "compressed-tensors", "config_groups": {
               "group_0": {"weights": {"num_bits": 8, "type": "float", "strategy": "block",
                                       "block_structure": )",
               block,
               R"(}, "input_activations": {"num_bits": 8, "type": "float", "strategy": "group",
                                       "dynamic": true, "group_size": )",
               group, "}}}}"));
  };
  const std::string fp8 = with(kLlama, R"("quantization_config": {"quant_method": "fp8"})");
  EXPECT_EQ(texts(of("[128, 128]", "128")), texts(fp8));
  EXPECT_NE(texts(of("[128, 64]", "128")), texts(fp8));
  EXPECT_NE(texts(of("[128, 128]", "64")), texts(fp8));
}

TEST_F(QuantizedWorklistTest, WeightsInFp8HaveResultsOfSixteenBits) {
  const auto texts_of = [&](std::string_view config, DType dtype) {
    const Result<ModelWorklist> list = model_worklist(
        config, "config.json", {.tokens = {16}, .contexts = {64}, .dtype = dtype}, *catalog_);
    Texts found;
    for (const Problem& problem : list->problems) found.push_back(problem.text());
    return found;
  };
  const std::string quantized = with(
      kLlama, R"("quantization_config": {"quant_method": "fp8", "activation_scheme": "static"})");
  EXPECT_EQ(texts_of(kLlama, DType::fp8_e4m3), texts_of(quantized, DType::bf16));
  EXPECT_EQ(texts_of(quantized, DType::fp8_e4m3), texts_of(quantized, DType::bf16));
}

std::string packed(std::string_view weights) {
  return concat(R"({"quant_method": "compressed-tensors", "format": "pack-quantized",
    "config_groups": {"group_0": {"targets": ["Linear"], "input_activations": null,
      "weights": {"type": "int", )",
                weights, "}}}}");
}

TEST_F(QuantizedWorklistTest, WeightsOfIntegersGiveQuantizedProducts) {
  const std::vector<std::pair<std::string, std::string>> methods = {
      {R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": false})",
       "group=128 dtype=bf16"},
      {R"({"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": false,
           "checkpoint_format": "gptq_v2"})",
       "group=32 dtype=bf16 zero=code"},
      {R"({"quant_method": "gptq", "bits": 8, "group_size": -1, "sym": true})",
       "dtype=bf16 weights=int8"},
      {R"({"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm",
           "zero_point": true})",
       "group=128 dtype=bf16 zero=code"},
      {R"({"quant_method": "awq", "zero_point": false})", "group=128 dtype=bf16"},
      {packed(R"("num_bits": 4, "strategy": "group", "group_size": 64, "symmetric": true)"),
       "group=64 dtype=bf16"},
      {packed(R"("num_bits": 8, "strategy": "channel", "group_size": null, "symmetric": false)"),
       "dtype=bf16 weights=int8 zero=code"}};
  for (const auto& [how, of_weights] : methods) {
    const std::string config = with(kLlama, "\"quantization_config\": " + how);
    const auto group = of_weights.substr(0, of_weights.find("dtype"));
    const auto flags = of_weights.substr(of_weights.find("dtype"));
    const auto product = [&](std::string_view sizes, std::string_view n_kv = "",
                             std::string_view more = "") {
      return concat(sizes, " ", group, n_kv, flags, more);
    };
    Texts expected = {product("m=16 n=6144 k=4096"),
                      product("m=16 n=4096 k=4096"),
                      product("m=16 n=1024 k=4096"),
                      product("m=16 n=6144 k=4096", "n_kv=1024 ", " split=qkv"),
                      product("m=16 n=28672 k=4096"),
                      product("m=16 n=14336 k=4096"),
                      product("m=16 n=4096 k=14336"),
                      product("m=16 n=14336 k=4096", "", " activation=silu gate=stacked")};
    EXPECT_EQ(sorted(problems_of("quantized_matmul", config, {16}, {})), sorted(expected)) << how;
    EXPECT_EQ(problems_of("matmul", config, {16}, {}),
              (Texts{"m=16 n=128256 k=4096 dtype=bf16",
                     "m=16 n=128256 k=4096 dtype=bf16 out=fp32 norm=rms"}));
    EXPECT_FALSE(has(notes(config), "left out: their weights")) << notes(config);
  }
}

TEST_F(QuantizedWorklistTest, ScalesHaveTheDtypeOfTheCheckpoint) {
  const std::string config =
      with(kLlama, R"("torch_dtype": "float16", "quantization_config": {"quant_method": "gptq"})");
  for (const std::string& text : problems_of("quantized_matmul", config, {16}, {})) {
    EXPECT_TRUE(has(text, " dtype=bf16 scale=fp16")) << text;
  }
}

TEST_F(QuantizedWorklistTest, RanksThatCutGroupsGiveProductsOfTheirSlices) {
  // 14336 / 64 columns: a rank begins 0, 32, 64 or 96 columns within a group of 128.
  const auto of_ranks = [&](std::string_view config, int ranks) {
    Texts found = problems_of("quantized_matmul", config, {16}, {}, ranks);
    std::erase_if(found, [](const std::string& text) { return !has(text, " first="); });
    return sorted(found);
  };
  const std::string config = with(
      kLlama, R"("quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128})");
  EXPECT_EQ(of_ranks(config, 8), Texts{});
  EXPECT_EQ(of_ranks(replaced(config, "14336", "11008"), 8),
            sorted({"m=16 n=4096 k=1376 group=128 first=32 dtype=bf16",
                    "m=16 n=4096 k=1376 group=128 first=64 dtype=bf16",
                    "m=16 n=4096 k=1376 group=128 first=96 dtype=bf16"}));
  const Texts all = problems_of("quantized_matmul", config, {16}, {}, 8);
  EXPECT_EQ(std::count(all.begin(), all.end(), "m=16 n=3584 k=4096 group=128 dtype=bf16"), 1);
  EXPECT_EQ(std::count(all.begin(), all.end(), "m=16 n=4096 k=1792 group=128 dtype=bf16"), 1);
}

TEST_F(QuantizedWorklistTest, QuantizedLayersAreThoseOfTheConfigAlone) {
  const std::string config =
      with(kQwen3Moe,
           R"("quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128})");
  // The router is not quantised.
  EXPECT_EQ(problems_of("matmul", config, {16}, {}).front(), "m=16 n=128 k=2048 dtype=bf16");
  EXPECT_TRUE(problems_of("grouped_matmul", config, {16}, {}).empty());
  EXPECT_EQ(problems_of("grouped_quantized_matmul", config, {16}, {}),
            (Texts{"experts=128 rows=128 n=768 k=2048 group=128 tokens=16 dtype=bf16 "
                   "a_rows=indexed activation=silu gate=stacked",
                   "experts=128 rows=128 n=2048 k=768 group=128 dtype=bf16"}));
  // Groups of a GPU's columns are whole, or its products are left out.
  EXPECT_EQ(problems_of("grouped_quantized_matmul", config, {16}, {}, 2).size(), 2U);
  EXPECT_TRUE(problems_of("grouped_quantized_matmul", config, {16}, {}, 4).empty());
  EXPECT_TRUE(has(notes(config, 4), "the products of experts are left out"));
  EXPECT_TRUE(has(notes(with(kLlama, R"("quantization_config": {"quant_method": "gptq",
      "dynamic": {"-:lm_head": {}}})")),
                  "rules for some modules, dynamic"));
  EXPECT_TRUE(problems_of("quantized_matmul", kGptOss, {16}, {}).empty()) << "its experts alone";
}

TEST_F(QuantizedWorklistTest, OtherwiseQuantisedProductsAreLeftOutAndNamed) {
  const Texts expected = {
      "attention batch=1 heads=32 kv_heads=8 q_len=16 kv_len=16 head_dim=128 dtype=bf16 "
      "mask=causal",
      "rope tokens=16 heads=32 kv_heads=8 head_dim=128 dtype=bf16",
      "rope tokens=16 heads=32 kv_heads=8 head_dim=128 dtype=bf16 append=cache",
      "gated_activation rows=16 columns=14336 dtype=bf16 layout=packed",
      "matmul m=16 n=128256 k=4096 dtype=bf16",
      "rmsnorm rows=16 columns=4096 dtype=bf16",
      "rmsnorm rows=16 columns=4096 dtype=bf16 residual=add"};
  const std::vector<std::pair<std::string, std::string>> methods = {
      {R"({"quant_method": "fp8", "weight_block_size": [64, 128]})",
       "fp8 with a scale for each block of 64 x 128"},
      {R"({"activation_scheme": "dynamic", "quant_method": "fp8", "weight_block_size": null})",
       "fp8, activations with scales of their own"},
      {R"({"quant_method": "gptq", "bits": 3, "group_size": 128})", "gptq, 3 bits"},
      {R"({"quant_method": "gptq", "bits": 4, "group_size": 8})", "gptq, 4 bits, groups of 8"},
      {R"({"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"})",
       "gptq, 4 bits, marlin"},
      {R"({"quant_method": "awq", "bits": 4, "version": "gemv"})", "awq, 4 bits, gemv"},
      {R"({"quant_method": "bitsandbytes", "load_in_4bit": true})", "bitsandbytes, 4 bits"},
      {R"({"quant_method": "compressed-tensors", "format": "float-quantized",
           "config_groups": {"group_0": {
             "weights": {"num_bits": 8, "type": "float", "strategy": "channel"},
             "input_activations": {"num_bits": 8, "type": "float", "strategy": "tensor",
                                   "dynamic": true}}}})",
       "compressed-tensors, float-quantized"},
      {R"({"quant_method": "compressed-tensors", "format": "int-quantized",
           "config_groups": {"group_0": {
             "weights": {"num_bits": 8, "type": "int", "strategy": "channel"},
             "input_activations": {"num_bits": 8, "type": "int", "strategy": "token",
                                   "dynamic": true, "symmetric": false}}}})",
       "compressed-tensors, int-quantized"},
      {R"({"quant_method": "compressed-tensors", "format": "pack-quantized",
           "config_groups": {"group_0": {
             "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128},
             "input_activations": {"num_bits": 8, "type": "float"}}}})",
       "compressed-tensors, pack-quantized"},
      {R"({"quant_method": "bitsandbytes", "load_in_8bit": true,
           "modules_to_not_convert": ["lm_head", "model.layers.0.mlp"]})",
       "leaves 1 modules as they are, such as model.layers.0.mlp"},
  };
  for (const auto& [how, named] : methods) {
    const std::string config = with(kLlama, "\"quantization_config\": " + how);
    EXPECT_EQ(texts(config), sorted(expected)) << how;
    EXPECT_TRUE(has(notes(config), named)) << notes(config);
    EXPECT_TRUE(has(notes(config), "the products of the layers are left out")) << notes(config);
  }
  for (const char* none :
       {"null",
        R"({"quant_method": "fp8", "dequantize": true, "weight_block_size": [128, 128]})"}) {
    EXPECT_EQ(texts(with(kLlama, std::string("\"quantization_config\": ") + none)), texts(kLlama));
  }
}

}  // namespace
}  // namespace kernwright
