#include "service/model_worklist.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

namespace kernwright {
namespace {

// Sizes of an 8-billion-parameter Llama 3, with some of the fields that published files have
// besides.
constexpr const char* kConfig = R"({
  "architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "hidden_size": 4096,
  "intermediate_size": 14336, "num_attention_heads": 32, "num_hidden_layers": 32,
  "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_scaling": null, "vocab_size": 128256
})";

class ModelWorklistTest : public ::testing::Test {
 protected:
  Result<ModelWorklist> make(std::string_view config, std::int64_t parts = 1,
                             std::vector<std::int64_t> tokens = {16}) const {
    return model_worklist(config, "config.json",
                          {.tokens = std::move(tokens), .tensor_parallel = parts}, *catalog_);
  }
  /// The products, as "n k", and " gated" where they are.
  static std::vector<std::string> products(const ModelWorklist& list) {
    std::vector<std::string> found;
    for (const Problem& problem : list.problems) {
      if (problem.operation() != "matmul") continue;
      found.push_back(std::to_string(problem.dims()[1].second) + " " +
                      std::to_string(problem.dims()[2].second));
      if (problem.text().ends_with(" activation=silu gate=stacked")) found.back() += " gated";
    }
    return found;
  }
  static std::string replaced(std::string text, const std::string& from, const std::string& to) {
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  }

  std::shared_ptr<const Catalog> catalog_ = Catalog::load({}).value();
};

TEST_F(ModelWorklistTest, HasTheProductsOfEveryLayerAndTheHead) {
  const Result<ModelWorklist> list = make(kConfig);
  ASSERT_TRUE(list) << list.error().message;
  EXPECT_EQ(products(*list),
            (std::vector<std::string>{"6144 4096", "4096 4096", "28672 4096", "4096 14336",
                                      "14336 4096 gated", "128256 4096"}));
  EXPECT_NE(std::find_if(list->problems.begin(), list->problems.end(),
                         [](const Problem& problem) {
                           return problem.text().starts_with("rmsnorm rows=16 columns=4096");
                         }),
            list->problems.end());
}

TEST_F(ModelWorklistTest, TensorParallelismSplitsColumnsThenRows) {
  const Result<ModelWorklist> list = make(kConfig, 16);
  ASSERT_TRUE(list) << list.error().message;
  EXPECT_EQ(products(*list), (std::vector<std::string>{"512 4096", "4096 256", "1792 4096",
                                                       "4096 896", "896 4096 gated", "8016 4096"}))
      << "two heads and one repeated key and value head each";
}

TEST_F(ModelWorklistTest, EveryTokenCountIsARowCount) {
  const Result<ModelWorklist> list = make(kConfig, 1, {1, 8, 8192});
  ASSERT_TRUE(list);
  EXPECT_EQ(products(*list).size(), 18U);
}

TEST_F(ModelWorklistTest, ExpertsAndOlderModelsAreLeftOutWithANote) {
  const Result<ModelWorklist> experts =
      make(replaced(kConfig, "\"hidden_act\"", "\"num_local_experts\": 8, \"hidden_act\""));
  ASSERT_TRUE(experts);
  EXPECT_EQ(products(*experts).size(), 3U);
  EXPECT_NE(std::find_if(
                experts->notes.begin(), experts->notes.end(),
                [](const std::string& note) { return note.find("experts") != std::string::npos; }),
            experts->notes.end());
  const Result<ModelWorklist> older =
      make(replaced(kConfig, "\"rms_norm_eps\"", "\"layer_norm_eps\""));
  ASSERT_TRUE(older);
  EXPECT_EQ(products(*older)[2], "14336 4096") << "no gate";
}

TEST_F(ModelWorklistTest, AModelWithinAModelIsRead) {
  const Result<ModelWorklist> list =
      make("{\"model_type\": \"sees\", \"text_config\": " + std::string(kConfig) + "}");
  ASSERT_TRUE(list) << list.error().message;
  EXPECT_EQ(products(*list).size(), 6U);
}

TEST_F(ModelWorklistTest, AGateThatProductsDoNotHaveIsAKernelOfItsOwn) {
  const Result<ModelWorklist> list = make(replaced(kConfig, "silu", "relu"));
  ASSERT_TRUE(list);
  EXPECT_EQ(products(*list).size(), 5U);
  EXPECT_NE(std::find_if(list->problems.begin(), list->problems.end(),
                         [](const Problem& problem) {
                           return problem.text().starts_with("gated_activation") &&
                                  problem.text().find("activation=relu") != std::string::npos;
                         }),
            list->problems.end());
}

TEST_F(ModelWorklistTest, WhatIsMissingOrDoesNotDivideIsNamed) {
  const auto message = [&](std::string_view config, std::int64_t parts = 1) {
    const Result<ModelWorklist> list = make(config, parts);
    return list ? std::string("accepted") : list.error().message;
  };
  EXPECT_NE(message("{}").find("hidden_size"), std::string::npos);
  EXPECT_NE(message("[]").find("hidden_size"), std::string::npos);
  EXPECT_NE(message(replaced(kConfig, "\"hidden_size\": 4096", "\"hidden_size\": -1"))
                .find("hidden_size must be"),
            std::string::npos);
  EXPECT_NE(message(kConfig, 3).find("num_attention_heads is 32"), std::string::npos);
  EXPECT_NE(message(kConfig, 64).find("num_attention_heads"), std::string::npos);
}

}  // namespace
}  // namespace kernwright
