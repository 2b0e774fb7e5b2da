#include "models/model_worklist.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <numeric>
#include <string>
#include <vector>

#include "support/hash.h"
#include "tests/models/model_configs.h"

namespace kernwright {
namespace {

TEST_F(ModelWorklistTest, Llama) {
  EXPECT_EQ(
      texts(kLlama),
      sorted({"attention batch=1 heads=32 kv_heads=8 q_len=16 kv_len=16 head_dim=128 dtype=bf16 "
              "mask=causal",
              "matmul m=16 n=6144 k=4096 dtype=bf16",
              "matmul m=16 n=6144 k=4096 n_kv=1024 dtype=bf16 split=qkv",
              "matmul m=16 n=1024 k=4096 dtype=bf16", "matmul m=16 n=4096 k=4096 dtype=bf16",
              "rope tokens=16 heads=32 kv_heads=8 head_dim=128 dtype=bf16",
              "rope tokens=16 heads=32 kv_heads=8 head_dim=128 dtype=bf16 append=cache",
              "matmul m=16 n=28672 k=4096 dtype=bf16",
              "matmul m=16 n=14336 k=4096 dtype=bf16 activation=silu gate=stacked",
              "gated_activation rows=16 columns=14336 dtype=bf16 layout=packed",
              "matmul m=16 n=4096 k=14336 dtype=bf16", "matmul m=16 n=128256 k=4096 dtype=bf16",
              "rmsnorm rows=16 columns=4096 dtype=bf16",
              "rmsnorm rows=16 columns=4096 dtype=bf16 residual=add"}));
  const std::string all = notes(kLlama);
  EXPECT_EQ(all, "");
}

// The tests below say why; this one sees every change. Look at the whole list before a digest is
// replaced: kernwright worklist CONFIG --tokens 1,16,513 --contexts 64,8192.
TEST_F(ModelWorklistTest, EveryListIsWhatItWas) {
  const struct {
    const char* config;
    std::int64_t parts;
    const char* digest;
  } lists[] = {
      {kLlama, 1, "4883637b488d80e1"},      {kLlama, 16, "1e1911fc73785ab8"},
      {kMistral, 1, "5b01cbc018e9b35e"},    {kQwen2, 1, "49c45453d6fccda5"},
      {kQwen2, 2, "06fba27b00a5c5b3"},      {kQwen3, 1, "72133626d11f63f8"},
      {kQwen3, 8, "98e953b918dec4bb"},      {kQwen3Moe, 1, "adf8eb6d47994eb1"},
      {kQwen3Moe, 8, "01dbfdc89c962cdc"},   {kMixtral, 1, "5ba1ad8d891bfc4c"},
      {kMixtral, 8, "bee1b5326bf0577c"},    {kGemma2, 1, "fefb0c54aea2d6fd"},
      {kGemma3, 1, "01c6eb38b1f9dec9"},     {kGemma3, 2, "90d0c2ac422cb589"},
      {kGlm4, 1, "bf15c9ed7cb0818c"},       {kDeepseekV2, 1, "96e321db3ef9207f"},
      {kDeepseekV3, 1, "7c5e93b025d4e7e3"}, {kDeepseekV3, 8, "9062e37065c33109"},
      {kGptOss, 1, "b96822794d886e4a"},     {kGptOss, 2, "54f209f4165ee584"},
      {kGpt2, 1, "8e0cb1b1bd35995c"},       {kPhi3, 1, "9851dbcafda5d872"},
  };
  for (const auto& [config, parts, digest] : lists) {
    const ModelWorklist list = must(make(config, parts, {1, 16, 513}, {64, 8192}));
    Hasher hasher;
    for (const Problem& problem : list.problems) hasher.add("problem", problem.text());
    EXPECT_EQ(hasher.finish().hex().substr(0, 16), digest) << config;
  }
}

TEST_F(ModelWorklistTest, AStepBeginsWithTokensAndEndsWithTheirChoice) {
  const std::string table = "hidden=4096 vocabulary=128256 dtype=bf16";
  const Sizes steps = {1, 8, kMostSequences + 1};
  EXPECT_EQ(problems_of("embedding", kLlama, steps, {}),
            (Texts{"tokens=1 " + table + " lengths=advance", "tokens=8 " + table,
                   "tokens=8 " + table + " lengths=advance", "tokens=513 " + table}));
  // A prompt of 513 tokens has one row, which a step of one token has too.
  EXPECT_EQ(problems_of("argmax", kLlama, steps, {}),
            (Texts{"rows=1 columns=128256 dtype=bf16", "rows=8 columns=128256 dtype=bf16",
                   "rows=1 columns=128256 dtype=fp32", "rows=8 columns=128256 dtype=fp32"}));
  EXPECT_EQ(problems_of("embedding", kLlama, {8}, {}, 2),
            (Texts{"tokens=8 " + table, "tokens=8 " + table + " lengths=advance"}));
  EXPECT_TRUE(problems_of("argmax", kLlama, {8}, {}, 2).empty());
  EXPECT_TRUE(has(notes(kLlama, 2), "the choice of a token is left out"));
}

TEST_F(ModelWorklistTest, LlamaWithBiases) {
  const std::string biased =
      replaced(kLlama, "\"attention_bias\": false", "\"attention_bias\": true");
  const Texts all = texts(replaced(biased, "{", "{\"mlp_bias\": true, "), 2);
  const auto listed = [&all](const std::string& text) {
    return std::count(all.begin(), all.end(), text) == 1;
  };
  EXPECT_TRUE(listed("matmul m=16 n=3072 k=4096 dtype=bf16 bias=column"));
  EXPECT_TRUE(listed("matmul m=16 n=3072 k=4096 n_kv=512 dtype=bf16 bias=column split=qkv"));
  EXPECT_TRUE(listed("matmul m=16 n=14336 k=4096 dtype=bf16 bias=column"));
  // What is summed over the GPUs gets its bias from one of them.
  EXPECT_TRUE(listed("matmul m=16 n=4096 k=2048 dtype=bf16 bias=column"));
  EXPECT_TRUE(listed("matmul m=16 n=4096 k=2048 dtype=bf16"));
  EXPECT_TRUE(listed("matmul m=16 n=4096 k=7168 dtype=bf16 bias=column"));
  EXPECT_TRUE(listed("matmul m=16 n=4096 k=7168 dtype=bf16"));
  EXPECT_EQ(all.size(), 16U) << "no gated product in one kernel: that takes no bias";
}

TEST_F(ModelWorklistTest, Qwen3MayLeaveLayersWithoutExperts) {
  const Texts with_experts = texts(kQwen3Moe);
  Texts both = with_experts;
  for (const char* text : {"matmul m=16 n=12288 k=2048 dtype=bf16",
                           "matmul m=16 n=6144 k=2048 dtype=bf16 activation=silu gate=stacked",
                           "gated_activation rows=16 columns=6144 dtype=bf16 layout=packed",
                           "matmul m=16 n=2048 k=6144 dtype=bf16"}) {
    both.emplace_back(text);
  }
  EXPECT_EQ(texts(replaced(kQwen3Moe, "\"mlp_only_layers\": []", "\"mlp_only_layers\": [3]")),
            sorted(both));
  EXPECT_EQ(texts(replaced(kQwen3Moe, "\"decoder_sparse_step\": 1", "\"decoder_sparse_step\": 2")),
            sorted(both));
  EXPECT_EQ(texts(replaced(kQwen3Moe, "\"mlp_only_layers\": []", "\"mlp_only_layers\": [48]")),
            with_experts)
      << "there is no layer 48";
  std::erase(both, "matmul m=16 n=128 k=2048 dtype=bf16");
  std::erase_if(both, [](const std::string& text) {
    return has(text, "experts") || text.starts_with("grouped");
  });
  for (const char* none : {"null", "0"}) {
    EXPECT_EQ(
        texts(replaced(kQwen3Moe, "\"num_experts\": 128", std::string("\"num_experts\": ") + none)),
        sorted(both))
        << none;
  }
}

TEST_F(ModelWorklistTest, EveryTypeOfRouterChoosesInItsWay) {
  const auto choice = [&](std::string_view config) {
    const Texts found = problems_of("choose_experts", config, {16}, {});
    return found.size() == 1 ? found.front() : concat(found.size(), " choices");
  };
  EXPECT_EQ(choice(kMixtral), "tokens=16 experts=8 top=2 dtype=bf16 renormalise=sum");
  EXPECT_EQ(choice(kQwen3Moe), "tokens=16 experts=128 top=8 dtype=bf16 renormalise=sum");
  EXPECT_EQ(choice(replaced(kQwen3Moe, "\"norm_topk_prob\": true", "\"norm_topk_prob\": false")),
            "tokens=16 experts=128 top=8 dtype=bf16");
  EXPECT_EQ(choice(kGptOss), "tokens=16 experts=32 top=4 dtype=bf16 softmax_at=after");
  EXPECT_EQ(choice(kDeepseekV2), "tokens=16 experts=64 top=6 dtype=fp32");
  EXPECT_EQ(choice(replaced(kDeepseekV2, "\"n_group\": 1", "\"n_group\": 8, \"topk_group\": 3")),
            "tokens=16 experts=64 top=6 expert_groups=8 kept_groups=3 dtype=fp32 group_score=best");
  const std::string sigmoid = "dtype=fp32 score=sigmoid bias=choice renormalise=sum";
  EXPECT_EQ(choice(kDeepseekV3),
            "tokens=16 experts=256 top=8 expert_groups=8 kept_groups=4 " + sigmoid);
  EXPECT_EQ(choice(replaced(kDeepseekV3, "deepseek_v3", "glm4_moe")),
            "tokens=16 experts=256 top=8 expert_groups=8 kept_groups=1 " + sigmoid);
  EXPECT_EQ(problems_of("order_experts", kDeepseekV3, {16}, {}),
            Texts{"tokens=16 top=8 experts=256"});
  EXPECT_EQ(problems_of("combine_experts", kDeepseekV3, {16}, {}),
            Texts{"tokens=16 top=8 columns=7168 dtype=bf16"});
  const std::string uneven = replaced(kDeepseekV3, "\"n_group\": 8", "\"n_group\": 7");
  EXPECT_EQ(choice(uneven), "0 choices");
  EXPECT_TRUE(has(notes(uneven), "the choice of experts is left out"));
  EXPECT_FALSE(has(notes(kDeepseekV3), "the choice of experts is left out"));
}

TEST_F(ModelWorklistTest, MixtralWithoutExpertsIsDense) {
  const Texts dense =
      texts(replaced(kMixtral, "\"num_local_experts\": 8", "\"num_local_experts\": 0"));
  EXPECT_EQ(std::count(dense.begin(), dense.end(), "matmul m=16 n=4096 k=14336 dtype=bf16"), 1);
}

TEST_F(ModelWorklistTest, Gemma2ScalesItsWeightsAndLogits) {
  const std::string all = notes(kGemma2);
  EXPECT_TRUE(has(all, "multiply by 1 + weight")) << all;
  EXPECT_TRUE(has(all, "the scale of the embedding")) << all;
  EXPECT_TRUE(has(all, "soft cap of the logits")) << all;
}

TEST_F(ModelWorklistTest, Gemma3TakesWhatItsConfigLeavesOutFromTransformersDefaults) {
  const std::string all = notes(kGemma3);
  EXPECT_TRUE(has(all,
                  "defaults of gemma3_text: head_dim=256 num_attention_heads=8 "
                  "num_key_value_heads=4 vocab_size=262208 sliding_window_pattern=6 "
                  "hidden_activation=gelu_pytorch_tanh query_pre_attn_scalar=256"))
      << all;
  EXPECT_TRUE(has(all, "all but the language model")) << all;
  EXPECT_FALSE(has(all, "soft cap")) << all;
  EXPECT_EQ(texts(replaced(kGemma3, "\"model_type\": \"gemma3_text\",", "")), texts(kGemma3))
      << "the model around it says what it is";
}

TEST_F(ModelWorklistTest, Glm4RotatesHalfOfEachHead) {
  EXPECT_TRUE(problems_of("rope", kGlm4, {16}, {}).empty());
  EXPECT_TRUE(has(notes(kGlm4), "the rotation of q and k is left out"));
  EXPECT_EQ(
      problems_of("rope", replaced(kGlm4, "0.5", "1.0"), {16}, {}),
      (Texts{"tokens=16 heads=32 kv_heads=2 head_dim=128 dtype=bf16 pairs=neighbours append=cache",
             "tokens=16 heads=32 kv_heads=2 head_dim=128 dtype=bf16 pairs=neighbours"}));
}

TEST_F(ModelWorklistTest, DeepseekV3) {
  const std::string all = notes(kDeepseekV3);
  EXPECT_TRUE(has(all, "512 of 576 columns")) << all;
  EXPECT_TRUE(has(all, "64 of 192 columns")) << all;
  EXPECT_TRUE(has(all, "products before and after mla_attention")) << all;
  EXPECT_TRUE(has(all, "predict further tokens")) << all;
}

TEST_F(ModelWorklistTest, GptOss) {
  const std::string experts = "experts=32 rows=64 n=2880 k=2880 group=32 ";
  const std::string codes = "dtype=bf16 scale=uint8 weights=mxfp4 ";
  EXPECT_EQ(problems_of("grouped_quantized_matmul", kGptOss, {16}, {}),
            (Texts{experts + "tokens=16 " + codes +
                       "a_rows=indexed bias=expert activation=swiglu_oai gate=stacked",
                   experts + codes + "bias=expert"}));
  const std::string plain = replaced(kGptOss, "\"quant_method\": \"mxfp4\"",
                                     "\"dequantize\": true, \"quant_method\": \"mxfp4\"");
  EXPECT_TRUE(problems_of("grouped_quantized_matmul", plain, {16}, {}).empty());
  EXPECT_EQ(
      problems_of("grouped_matmul", plain, {16}, {}),
      (Texts{"groups=32 rows=64 n=2880 k=2880 tokens=16 dtype=bf16 a_rows=indexed b_layout=kn "
             "bias=expert activation=swiglu_oai gate=interleaved",
             "groups=32 rows=64 n=2880 k=2880 dtype=bf16 b_layout=kn bias=expert"}));
  EXPECT_FALSE(has(notes(plain), "the products of experts are left out"));
}

TEST_F(ModelWorklistTest, Gpt2) {
  EXPECT_EQ(texts(with(kGpt2, "\"n_inner\": null")), texts(kGpt2));
  EXPECT_EQ(texts(replaced(kGpt2, "n_embd", "hidden_size")), texts(kGpt2));
  const std::string all = notes(kGpt2);
  EXPECT_TRUE(has(all, "b_layout=kn")) << all;
  EXPECT_TRUE(has(all, "the embedding of positions")) << all;
}

TEST_F(ModelWorklistTest, Phi3MayRotateAPartOfEachHead) {
  EXPECT_EQ(texts(replaced(kPhi3, "\"num_key_value_heads\": 32", "\"head_dim\": null")),
            texts(kPhi3));
  EXPECT_TRUE(has(notes(with(kPhi3, "\"rope_parameters\": {\"partial_rotary_factor\": 0.75}")),
                  "the rotation of q and k is left out"));
}

TEST_F(ModelWorklistTest, AStepIsAPromptOrReadsACache) {
  const std::string heads = "heads=32 kv_heads=8 ";
  const std::string rest = "head_dim=128 dtype=bf16 ";
  const std::string cached = rest + "lengths=kv mask=causal";
  const std::string paged = rest + "lengths=kv cache=paged mask=causal";
  EXPECT_EQ(attention(kLlama, {1, 8, 1024}, {8, 4096}),
            (Texts{"batch=1 " + heads + "q_len=8 kv_len=8 " + rest + "mask=causal",
                   "batch=1 " + heads + "q_len=1024 kv_len=1024 " + rest + "mask=causal",
                   // A token each of 1 and of 8 sequences.
                   "batch=1 " + heads + "q_len=1 kv_len=8 " + cached,
                   "batch=1 " + heads + "q_len=1 kv_len=8 " + paged,
                   "batch=1 " + heads + "q_len=1 kv_len=4096 " + cached,
                   "batch=1 " + heads + "q_len=1 kv_len=4096 " + paged,
                   "batch=8 " + heads + "q_len=1 kv_len=8 " + cached,
                   "batch=8 " + heads + "q_len=1 kv_len=8 " + paged,
                   "batch=8 " + heads + "q_len=1 kv_len=4096 " + cached,
                   "batch=8 " + heads + "q_len=1 kv_len=4096 " + paged,
                   // Of 8 tokens and of 1024 where a context is longer.
                   "batch=1 " + heads + "q_len=8 kv_len=4096 " + cached,
                   "batch=1 " + heads + "q_len=8 kv_len=4096 " + paged,
                   "batch=1 " + heads + "q_len=1024 kv_len=4096 " + cached,
                   "batch=1 " + heads + "q_len=1024 kv_len=4096 " + paged}));
  // The smallest prompt has two tokens, and 16 GPUs have a key and value head each.
  EXPECT_EQ(attention(kLlama, {1}, {}), Texts());
  EXPECT_EQ(attention(kLlama, {2}, {}, 16),
            Texts{"batch=1 heads=2 kv_heads=1 q_len=2 kv_len=2 head_dim=128 dtype=bf16 "
                  "mask=causal"});
}

TEST_F(ModelWorklistTest, StepsOfPagesAppendToThem) {
  EXPECT_EQ(problems_of("kv_append", kLlama, {8}, {1024}),
            (Texts{"batch=8 kv_heads=8 heads=32 q_len=1 kv_len=1024 head_dim=128 dtype=bf16 "
                   "lengths=kv cache=paged rope=qk",
                   "batch=1 kv_heads=8 heads=32 q_len=8 kv_len=1024 head_dim=128 dtype=bf16 "
                   "lengths=kv cache=paged rope=qk"}));
  EXPECT_EQ(problems_of("kv_append", kQwen3, {4}, {1024})[1],
            "batch=4 kv_heads=8 heads=32 q_len=1 kv_len=1024 head_dim=128 dtype=bf16 lengths=kv "
            "cache=paged rope=qk norm=rms");
  EXPECT_EQ(problems_of("kv_append", kGpt2, {4}, {64}).front(),
            "batch=4 kv_heads=12 q_len=1 kv_len=64 head_dim=64 dtype=bf16 lengths=kv cache=paged");
  EXPECT_TRUE(problems_of("kv_append", kLlama, {8}, {}).empty());
}

TEST_F(ModelWorklistTest, PromptsOfNormalisedHeadsAreCachesThatBegin) {
  EXPECT_EQ(problems_of("kv_append", kQwen3, {1, 2, 2048}, {}),
            (Texts{"batch=1 kv_heads=8 heads=32 q_len=2 kv_len=2 head_dim=128 dtype=bf16 rope=qk "
                   "norm=rms",
                   "batch=1 kv_heads=8 heads=32 q_len=2048 kv_len=2048 head_dim=128 dtype=bf16 "
                   "rope=qk norm=rms"}));
  EXPECT_TRUE(problems_of("kv_append", kLlama, {2048}, {}).empty());
}

TEST_F(ModelWorklistTest, StepsOfMoreSequencesThanAreDecodedAreNoDecode) {
  EXPECT_EQ(attention(kLlama, {kMostSequences}, {64}).size(), 3U);
  EXPECT_EQ(attention(kLlama, {kMostSequences + 1}, {64}).size(), 1U);
}

TEST_F(ModelWorklistTest, AStepOfDecodingIsListedInFewKernels) {
  const std::string sizes =
      "batch=16 heads=32 kv_heads=8 q_len=1 kv_len=1024 head_dim=128 dtype=bf16 ";
  EXPECT_EQ(fused(kQwen3, {16}, {1024}),
            (Texts{"matmul m=16 n=6144 k=4096 n_kv=1024 dtype=bf16 norm=rms split=qkv",
                   "attention " + sizes + "lengths=kv append=norm_rope",
                   "attention " + sizes + "layout=bhsd lengths=kv append=norm_rope",
                   "attention " + sizes + "lengths=kv cache=paged append=norm_rope",
                   "matmul m=16 n=4096 k=4096 dtype=bf16 residual=add",
                   "matmul m=16 n=12288 k=4096 dtype=bf16 norm=rms activation=silu gate=stacked",
                   "matmul m=16 n=4096 k=12288 dtype=bf16 residual=add",
                   "matmul m=16 n=151936 k=4096 dtype=bf16 out=fp32 norm=rms",
                   "argmax rows=16 columns=151936 dtype=fp32"}));
  EXPECT_EQ(fused(kLlama, {1}, {64})[1],
            "attention batch=1 heads=32 kv_heads=8 q_len=1 kv_len=64 head_dim=128 dtype=bf16 "
            "lengths=kv append=rope");
  // One GPU of several adds nothing: the sums over all GPUs stand between.
  EXPECT_EQ(fused(kQwen2, {16}, {}, 2),
            (Texts{"matmul m=16 n=2304 k=3584 n_kv=256 dtype=bf16 norm=rms bias=column split=qkv",
                   "matmul m=16 n=9472 k=3584 dtype=bf16 norm=rms activation=silu gate=stacked",
                   "matmul m=16 n=76032 k=3584 dtype=bf16 out=fp32 norm=rms"}));
  // The results of these layers are normalised in front of the sum.
  EXPECT_EQ(fused(kGemma2).size(), 4U);
  // All three caches of layers with a window and of those without.
  EXPECT_EQ(fused(kGemma2, {1}, {8192}).size(), 10U);
  EXPECT_EQ(fused(kGptOss, {1}, {129})[2],
            "attention batch=1 heads=64 kv_heads=8 q_len=1 kv_len=129 head_dim=64 window=128 "
            "dtype=bf16 lengths=kv mask=window sink=head append=rope");
  // GPT-2 has layernorm, biases, and no gate.
  EXPECT_EQ(fused(kGpt2), (Texts{"matmul m=16 n=768 k=768 dtype=bf16 bias=column residual=add",
                                 "matmul m=16 n=768 k=3072 dtype=bf16 bias=column residual=add",
                                 "argmax rows=16 columns=50257 dtype=fp32"}));
  // A prompt has what adds to the sum of the layers.
  EXPECT_EQ(fused(kLlama, {kMostSequences + 1}),
            (Texts{"matmul m=513 n=4096 k=4096 dtype=bf16 residual=add",
                   "matmul m=513 n=4096 k=14336 dtype=bf16 residual=add"}));
}

TEST_F(ModelWorklistTest, RowsThatAProductCannotNormaliseComeNormalised) {
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    const ModelWorklist list = must(model_worklist(
        kLlama, "config.json", {.tokens = {1, 32}, .contexts = {}, .dtype = dtype}, *catalog_));
    const auto listed = [&](const std::string& text) {
      return std::ranges::any_of(list.problems,
                                 [&](const Problem& problem) { return problem.text() == text; });
    };
    const std::string name(to_string(dtype));
    const bool can_be = dtype == DType::bf16;
    const std::string one = "matmul m=1 n=128256 k=4096 dtype=" + name + " out=fp32";
    const std::string many = "matmul m=32 n=128256 k=4096 dtype=" + name + " out=fp32";
    EXPECT_EQ(listed(one + " norm=rms"), can_be);
    EXPECT_EQ(listed(one), !can_be);
    EXPECT_FALSE(listed(many + " norm=rms"));
    EXPECT_TRUE(listed(many));
    EXPECT_TRUE(listed("rmsnorm rows=32 columns=4096 dtype=" + name));
    EXPECT_TRUE(list.notes.empty()) << list.notes.front();
  }
}

TEST_F(ModelWorklistTest, AWindowThatLeavesNoKeyOutIsNone) {
  EXPECT_EQ(attention(kGptOss, {1}, {128}).size(), 2U);
  EXPECT_EQ(attention(kGptOss, {1}, {129}).size(), 4U);
}

TEST_F(ModelWorklistTest, Gemma2CapsItsLogits) {
  EXPECT_TRUE(has(notes(kGemma2), "launch attention with cap=50\n")) << notes(kGemma2);
  EXPECT_FALSE(has(notes(kGemma2), "defaults")) << notes(kGemma2);
  const std::string uncapped = replaced(kGemma2, "50.0", "null");
  EXPECT_EQ(attention(uncapped, {2}, {}),
            Texts{"batch=1 heads=16 kv_heads=8 q_len=2 kv_len=2 head_dim=256 dtype=bf16 "
                  "mask=causal"});
  EXPECT_FALSE(has(notes(uncapped), "cap="));
  EXPECT_TRUE(has(notes(replaced(kGemma2, "\"attn_logit_softcapping\": 50.0,", "")),
                  "defaults of gemma2: attn_logit_softcapping=50\n"));
}

TEST_F(ModelWorklistTest, WindowsAreOfTheLayersThatTransformersGivesThem) {
  constexpr Layers kFull{.full = true, .windowed = false};
  constexpr Layers kWindowed{.full = false, .windowed = true};
  constexpr Layers kBoth{.full = true, .windowed = true};
  const std::string window = "\"sliding_window\": 512";
  const std::string asked = window + ", \"use_sliding_window\": true";
  EXPECT_EQ(layers(kLlama), kFull);
  EXPECT_EQ(layers(with(kLlama, window)), kFull) << "the type has none";
  EXPECT_EQ(layers(kMistral), kFull);
  EXPECT_EQ(layers(replaced(kMistral, "\"sliding_window\": null", window)), kWindowed);
  EXPECT_EQ(layers(kMixtral), kFull);
  EXPECT_EQ(layers(with(kMixtral, window)), kWindowed);
  EXPECT_EQ(layers(replaced(kPhi3, "2047", "512")), kWindowed);
  EXPECT_EQ(layers(with(kQwen3Moe, window)), kFull);
  EXPECT_EQ(layers(with(kQwen3Moe, asked)), kWindowed);

  const std::string qwen2 = replaced(kQwen2, "\"use_sliding_window\": false", asked);
  EXPECT_EQ(layers(replaced(kQwen2, "{", "{" + window + ", ")), kFull);
  EXPECT_EQ(layers(qwen2), kFull) << "28 layers, and 28 is the default";
  EXPECT_EQ(layers(replaced(qwen2, "{", "{\"max_window_layers\": 21, ")), kBoth);
  EXPECT_EQ(layers(replaced(qwen2, "{", "{\"max_window_layers\": 0, ")), kWindowed);
  EXPECT_TRUE(has(notes(qwen2), "max_window_layers=28")) << notes(qwen2);
  EXPECT_EQ(layers(with(kQwen3, asked)), kBoth) << "36 layers";

  const std::string gemma3 =
      replaced(kGemma3, "\"sliding_window\": 1024", "\"sliding_window\": 512");
  EXPECT_EQ(layers(gemma3), kBoth);
  EXPECT_TRUE(has(notes(gemma3), "sliding_window_pattern=6")) << notes(gemma3);
  EXPECT_EQ(layers(replaced(gemma3, "34", "5")), kWindowed);
  EXPECT_EQ(layers(replaced(gemma3, "512", "512, \"sliding_window_pattern\": 1")), kFull);
  EXPECT_EQ(layers(replaced(replaced(kGemma2, "4096,", "512,"), "42", "1")), kWindowed);

  const auto listed = [&](const std::string& types) {
    return replaced(qwen2, "{", "{\"layer_types\": " + types + ", ");
  };
  EXPECT_EQ(layers(listed(R"(["full_attention", "sliding_attention"])")), kBoth);
  EXPECT_EQ(layers(listed(R"(["sliding_attention"])")), kWindowed);
  EXPECT_EQ(layers(listed(R"(["full_attention"])")), kFull);
  EXPECT_EQ(layers(listed("null")), kFull);
  for (const char* wrong : {R"(["full_attention", "chunked_attention"])", "[1]", "3"}) {
    EXPECT_TRUE(has(message(listed(wrong)), "config.json:1: layer_types must be a list of"))
        << message(listed(wrong));
  }
  EXPECT_TRUE(has(notes(replaced(kMistral, "\"sliding_window\": null, ", "")),
                  "defaults of mistral: sliding_window=4096\n"));
}

TEST_F(ModelWorklistTest, ScalesThatAreNotTheDefaultAreNoted) {
  for (const char* config : {kLlama, kGemma2, kGemma3, kDeepseekV3, kGptOss, kGpt2}) {
    EXPECT_FALSE(has(notes(config), "scale=")) << notes(config);
  }
  EXPECT_TRUE(has(
      notes(replaced(kGemma2, "\"query_pre_attn_scalar\": 256", "\"query_pre_attn_scalar\": 144")),
      "scale=1/sqrt(144), by query_pre_attn_scalar"));
  EXPECT_TRUE(has(notes(with(kGpt2, "\"scale_attn_weights\": false")), "scale=1:"));
  EXPECT_TRUE(has(notes(with(kGpt2, "\"scale_attn_by_inverse_layer_idx\": true")),
                  "with the scale of its layer"));
  for (const char* how :
       {R"("rope_scaling": {"type": "yarn", "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0})",
        R"("rope_parameters": {"rope_type": "yarn", "factor": 40, "mscale_all_dim": 1})"}) {
    EXPECT_TRUE(has(notes(with(kDeepseekV3, how)), "scale=(0.1 * 1 * ln(40) + 1)^2/sqrt(head_dim)"))
        << notes(with(kDeepseekV3, how));
  }
  EXPECT_FALSE(
      has(notes(with(kDeepseekV3, R"("rope_scaling": {"type": "yarn", "factor": 40})")), "scale="));
}

TEST_F(ModelWorklistTest, AttentionThatIsNotCausalIsLeftOut) {
  const std::string both = with(kGemma2, "\"use_bidirectional_attention\": true");
  EXPECT_EQ(attention(both, {1, 16}, {64}), Texts());
  EXPECT_TRUE(has(notes(both), "attention is left out: its queries see keys on both sides"));
}

TEST_F(ModelWorklistTest, PromptsOfLatentsAreExpandedAndDecodingIsNot) {
  EXPECT_EQ(attention(kDeepseekV3, {1, 16}, {64, 4096}, 8),
            Texts{"batch=1 heads=16 q_len=16 kv_len=16 head_dim=192 head_dim_v=128 dtype=bf16 "
                  "mask=causal"});
  const std::string apart = "cache=contiguous keys=apart query=split";
  EXPECT_EQ(problems_of("mla_attention", kDeepseekV3, {1, 513}, {64, 4096}, 8),
            (Texts{"batch=1 heads=16 kv_len=64 dtype=bf16 " + apart,
                   "batch=1 heads=16 kv_len=64 dtype=bf16",
                   "batch=1 heads=16 kv_len=4096 dtype=bf16 " + apart,
                   "batch=1 heads=16 kv_len=4096 dtype=bf16"}));
}

TEST_F(ModelWorklistTest, AttentionOfHeadsThatItCannotHaveIsLeftOutOnce) {
  const std::string odd = with(kLlama, "\"head_dim\": 100");
  const ModelWorklist list = must(make(odd, 1, {1, 16}, {64, 4096}));
  EXPECT_EQ(std::count_if(list.notes.begin(), list.notes.end(),
                          [](const std::string& note) {
                            return note.starts_with("what cannot be is left out, attention: ");
                          }),
            1);
}

TEST_F(ModelWorklistTest, EveryTokenCountIsARowCount) {
  const ModelWorklist list = must(make(kLlama, 1, {1, 8, 8192}));
  EXPECT_EQ(list.problems.size(), 61U) << "a single token is no prompt";
}

TEST_F(ModelWorklistTest, StepsAndContextsThatCannotBeAreNamed) {
  const auto refused = [&](std::int64_t tokens, std::int64_t context) {
    const Result<ModelWorklist> list = make(kLlama, 1, {16, tokens}, {4096, context});
    return list ? std::string("accepted") : list.error().message;
  };
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  EXPECT_EQ(refused(kMost, kMost), "accepted");
  EXPECT_EQ(refused(0, 1), "a step of 0 tokens: from 1 to 1073741824 are possible");
  EXPECT_EQ(refused(kMost + 1, 1),
            "a step of 1073741825 tokens: from 1 to 1073741824 are possible");
  EXPECT_EQ(refused(1, 0), "a context of 0 tokens: from 1 to 1073741824 are possible");
  EXPECT_EQ(refused(1, kMost + 1),
            "a context of 1073741825 tokens: from 1 to 1073741824 are possible");
}

TEST_F(ModelWorklistTest, MoreProblemsThanAWorklistMayHaveAreRefused) {
  Sizes many(9'000);
  std::iota(many.begin(), many.end(), 1);
  const auto refused = [&](const Sizes& tokens, const Sizes& contexts) {
    const Result<ModelWorklist> list = make(kLlama, 1, tokens, contexts);
    return list ? std::string("accepted") : list.error().message;
  };
  EXPECT_EQ(refused(many, {}),
            "config.json: 9000 token counts and 0 contexts give more than 100000 problems, the "
            "most of a worklist");
  EXPECT_TRUE(has(refused(many, many), "9000 token counts and 9000 contexts")) << "at once";
  // Eight problems of a decode and of a chunk for each context make 72 000 a token count.
  EXPECT_TRUE(has(refused({16, 17, 18}, many), "3 token counts and 9000 contexts"));
  EXPECT_EQ(refused({8'000, 9'000}, many), "accepted");
}

TEST_F(ModelWorklistTest, ExpertsReadTheRowsOfTokens) {
  EXPECT_EQ(problems_of("grouped_matmul", kQwen3Moe, {16}, {}),
            (Texts{"groups=128 rows=128 n=768 k=2048 tokens=16 dtype=bf16 a_rows=indexed "
                   "activation=silu gate=stacked",
                   "groups=128 rows=128 n=2048 k=768 dtype=bf16"}));
}

TEST_F(ModelWorklistTest, ActivationsThatAnOperationLacksAreLeftOutWhereItIsAskedFor) {
  const auto activations = [&](const std::string& name) {
    Texts found;
    for (const std::string& text : texts(replaced(kLlama, "silu", name))) {
      if (has(text, "activation")) found.push_back(text);
    }
    return found;
  };
  EXPECT_EQ(activations("relu"),
            Texts{"gated_activation rows=16 columns=14336 dtype=bf16 activation=relu "
                  "layout=packed"});
  EXPECT_TRUE(
      has(notes(replaced(kLlama, "silu", "relu")), "matmul: activation=relu is not one of"));
  EXPECT_EQ(activations("gelu").size(), 2U);
  EXPECT_EQ(activations("relu2"), Texts());
  EXPECT_TRUE(has(notes(replaced(kLlama, "silu", "relu2")),
                  "gated_activation: activation=relu_squared is not one of"));
  EXPECT_EQ(activations("quick_gelu"), Texts());
  EXPECT_TRUE(
      has(notes(replaced(kLlama, "silu", "quick_gelu")), "activation=quick_gelu is not one of"));
  const std::string without = replaced(kLlama, "\"hidden_act\": \"silu\", ", "");
  EXPECT_EQ(texts(without), texts(kLlama));
  EXPECT_TRUE(has(notes(without), "hidden_act=silu"));
}

TEST_F(ModelWorklistTest, FieldsThatAreNotNeededMayHoldAnything) {
  EXPECT_EQ(texts(with(kLlama, R"("num_experts": null, "num_local_experts": "many",
    "n_routed_experts": -1, "kv_lora_rank": {}, "moe_intermediate_size": 0, "n_head": [],
    "text_config": null)")),
            texts(kLlama));
  EXPECT_EQ(texts(with(kDeepseekV3, R"("head_dim": "none", "num_experts": -3)")),
            texts(kDeepseekV3));
  EXPECT_EQ(texts(replaced(kQwen3Moe, "6144", "null")), texts(kQwen3Moe));
}

TEST_F(ModelWorklistTest, UnknownTypesAreRefusedWithTheKnownOnes) {
  for (const std::string& refused :
       {message(R"({"model_type": "bert", "hidden_size": 768})"),
        message(R"({"hidden_size": 4096})"), message(R"({"model_type": 3})"),
        message(R"({"model_type": "sees", "text_config": {"hidden_size": 8}})")}) {
    EXPECT_TRUE(has(refused, "config.json:1: ")) << refused;
    EXPECT_TRUE(has(refused,
                    "known are deepseek_v2, deepseek_v3, gemma2, gemma3, gemma3_text, glm4, "
                    "glm4_moe, gpt2, gpt_oss, llama, mistral, mixtral, phi3, qwen2, qwen3, "
                    "qwen3_moe."))
        << refused;
    EXPECT_TRUE(has(refused, "write the worklist by hand: {\"problems\": [")) << refused;
  }
  EXPECT_TRUE(has(message("[]"), "config.json:1: a config is an object, is array"));
  EXPECT_EQ(texts(R"({"model_type": "sees", "text_config": )" + std::string(kLlama) + "}"),
            texts(kLlama));
}

TEST_F(ModelWorklistTest, WhatIsWrongOrDoesNotDivideIsNamed) {
  EXPECT_TRUE(has(message(replaced(kLlama, "\"hidden_size\": 4096", "\"hidden_size\": -1")),
                  "config.json:3: hidden_size must be an integer from 1 to 1073741824, is -1"));
  EXPECT_TRUE(has(message(replaced(kLlama, "128256", "\"all\"")),
                  "config.json:5: vocab_size must be an integer from 1 to 1073741824, is \"all\""));
  EXPECT_TRUE(has(message(replaced(kLlama, "\"silu\"", "null")), "hidden_act must be a string"));
  EXPECT_TRUE(
      has(message(replaced(kLlama, "\"num_key_value_heads\": 8", "\"num_key_value_heads\": 5")),
          "num_key_value_heads is 5, which does not divide"));
  EXPECT_TRUE(has(message(with(kLlama, "\"quantization_config\": 3")),
                  "quantization_config must be an object"));
  EXPECT_TRUE(has(message(replaced(kQwen3Moe, "\"mlp_only_layers\": []", "\"mlp_only_layers\": 3")),
                  "mlp_only_layers must be a list of integers"));
  EXPECT_TRUE(has(message(with(kLlama, "\"attention_bias\": 3")), "attention_bias"));
  EXPECT_TRUE(has(message(kLlama, 3), "attention heads is 32, which 3 GPUs do not divide"));
  EXPECT_TRUE(has(message(kQwen3, 64), "attention heads is 32, which 64 GPUs"));
  EXPECT_TRUE(has(message(kQwen2, 7), "num_key_value_heads is 4, which 7 GPUs do not divide"));
  EXPECT_TRUE(has(message(kGlm4, 32), "accepted")) << "13696 is 428 x 32";
  EXPECT_TRUE(has(message(replaced(kGlm4, "13696", "13697"), 2), "inner size is 13697"));
}

}  // namespace
}  // namespace kernwright
