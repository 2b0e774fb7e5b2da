#include "tuner/cost/cost_model.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <string>

#include "model/catalog/catalog.h"
#include "support/text.h"
#include "tuner/candidates/candidate_list.h"

namespace kernwright {
namespace {

class CostModelTest : public ::testing::Test {
 protected:
  BoundProblem bound(std::string_view text) const {
    return catalog_->bind(Problem::parse(text).value()).value();
  }
  CandidateList enumerate(std::string_view text, std::string_view sku = "h200") const {
    return enumerate_candidates(*catalog_, bound(text), find_profile(sku).value()).value();
  }
  double roofline(std::string_view text) const { return roofline_us(bound(text), h200_); }
  /// The least prediction, of all candidates or of one template's.
  double best_us(std::string_view text, std::string_view kernel_template = "") const {
    const CandidateList list = enumerate(text);
    double us = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < list.candidates.size(); ++i) {
      const std::string& name = list.candidates[i].kernel_template->name;
      if (kernel_template.empty() || name == kernel_template)
        us = std::min(us, list.predicted_us[i]);
    }
    return us;
  }

  const DeviceProfile h200_ = find_profile("h200").value();
  std::shared_ptr<const Catalog> catalog_ = Catalog::load({}).value();
};

TEST_F(CostModelTest, TheRooflineIsTheLargestOfItsTerms) {
  EXPECT_NEAR(roofline("matmul m=8192 n=8192 k=8192 dtype=bf16"),
              2 * 8192.0 * 8192 * 8192 / (h200_.dense_16bit_tflops * 1e6), 0.01);
  EXPECT_NEAR(roofline("matmul m=1 n=8192 k=8192 dtype=bf16"),
              2 * (8192.0 * 8192 + 2 * 8192) / (h200_.dram_gbps * 1e3), 0.01);
  EXPECT_NEAR(roofline("vector_add n=33554432 dtype=bf16"),
              6 * 33554432.0 / (h200_.dram_gbps * 1e3), 0.01);
}

TEST_F(CostModelTest, SpecialFunctionsHaveARateOfTheirOwn) {
  const double pairs = 8 * 16 * 2048.0 * 2048;
  const double special_us = pairs / (16 * 132 * h200_.sm_clock_mhz);
  EXPECT_GT(special_us, 2 * pairs * 2 * 32 / (h200_.dense_16bit_tflops * 1e6));
  EXPECT_NEAR(roofline("attention batch=8 heads=16 q_len=2048 kv_len=2048 head_dim=32 dtype=bf16"),
              special_us, 0.01);
  EXPECT_NEAR(roofline("attention batch=8 heads=16 q_len=2048 kv_len=2048 head_dim=256 dtype=bf16"),
              2 * pairs * 2 * 256 / (h200_.dense_16bit_tflops * 1e6), 0.01);
}

TEST_F(CostModelTest, TheRooflineIsThatOfTheNarrowestInput) {
  const double bf16 = roofline("matmul m=8192 n=8192 k=8192 dtype=bf16");
  EXPECT_DOUBLE_EQ(roofline("matmul m=8192 n=8192 k=8192 dtype=bf16 out=fp8_e4m3"), bf16);
  EXPECT_DOUBLE_EQ(roofline("matmul m=8192 n=8192 k=8192 dtype=fp8_e4m3 out=bf16"), bf16 / 2);
  EXPECT_DOUBLE_EQ(roofline("matmul m=8192 n=8192 k=8192 dtype=fp32 tf32=allow"), 2 * bf16);
  EXPECT_NEAR(roofline("matmul m=1 n=8192 k=8192 dtype=fp8_e4m3"),
              roofline("matmul m=1 n=8192 k=8192 dtype=bf16") / 2, 0.01);
}

TEST_F(CostModelTest, EveryTemplateDeclaresItsCost) {
  for (const KernelTemplate& one : catalog_->templates()) {
    EXPECT_FALSE(one.cost.empty()) << one.name;
  }
}

TEST_F(CostModelTest, ATemplateThatDeclaresNothingIsPredictedAllTheSame) {
  for (const auto& [text, name] :
       {std::pair("vector_add n=33554432 dtype=bf16", "vector_add/vectorized"),
        std::pair("rmsnorm rows=4096 columns=8192 dtype=bf16", "rmsnorm/row"),
        std::pair("matmul m=4096 n=4096 k=4096 dtype=bf16", "matmul/tiled")}) {
    KernelTemplate silent = *catalog_->kernel_template(name).value();
    silent.cost.clear();
    const Candidate candidate =
        make_candidate(silent, bound(text), silent.default_configuration, h200_).value();
    const double us = predict_us(candidate, h200_);
    EXPECT_GT(us, roofline(text)) << text;
    EXPECT_LT(us, 4 * roofline(text)) << text;
  }
}

TEST_F(CostModelTest, NoPredictionIsBelowTheRoofline) {
  for (const char* text :
       {"matmul m=4096 n=6144 k=4096 dtype=bf16", "matmul m=16 n=4096 k=4096 dtype=fp16",
        "matmul m=1 n=1 k=1 dtype=bf16", "matmul m=2048 n=14336 k=4096 dtype=bf16 gate=stacked",
        "matmul m=64 n=14336 k=4096 dtype=bf16 gate=stacked", "rmsnorm rows=1 columns=1 dtype=fp32",
        "vector_add n=1 dtype=fp16"}) {
    EXPECT_GE(best_us(text), 0.999 * roofline(text)) << text;
  }
}

TEST_F(CostModelTest, EverySkuIsPredicted) {
  for (const DeviceProfile& profile : built_in_profiles()) {
    for (const char* text :
         {"matmul m=300 n=1024 k=1024 dtype=bf16", "vector_add n=4096 dtype=fp16",
          "layernorm rows=300 columns=1024 dtype=bf16"}) {
      for (const double us : enumerate(text, profile.id).predicted_us) {
        ASSERT_TRUE(std::isfinite(us) && us > 0) << profile.id << " " << text;
      }
    }
  }
}

TEST_F(CostModelTest, ABatchCostsWhatItsProductsCost) {
  const double one = best_us("matmul m=4096 n=4096 k=4096 dtype=bf16");
  const double four = best_us("matmul m=4096 n=4096 k=4096 dtype=bf16 batch=4");
  EXPECT_GT(four, 3.5 * one);
  EXPECT_LT(four, 4.1 * one);
  // Small products fill the device together.
  EXPECT_LT(best_us("matmul m=128 n=128 k=1024 dtype=bf16 batch=16"),
            3 * best_us("matmul m=128 n=128 k=1024 dtype=bf16"));
}

TEST_F(CostModelTest, WidthsOfInputsCostInProportion) {
  const double bf16 = best_us("matmul m=4096 n=4096 k=4096 dtype=bf16");
  EXPECT_NEAR(best_us("matmul m=4096 n=4096 k=4096 dtype=fp32 tf32=allow") / bf16, 2, 0.15);
  const double fast =
      best_us("matmul m=4096 n=4096 k=4096 dtype=fp8_e4m3 out=bf16 accumulate=fast");
  const double full = best_us("matmul m=4096 n=4096 k=4096 dtype=fp8_e4m3 out=bf16");
  EXPECT_NEAR(fast / bf16, 0.55, 0.07);
  EXPECT_GE(full, fast);
  EXPECT_LT(full, 1.3 * fast);
}

TEST_F(CostModelTest, BAsKnCostsWhatItDoesAsNk) {
  for (const char* sizes : {"m=4096 n=4096 k=4096", "m=16 n=4096 k=4096"}) {
    const double nk = best_us(concat("matmul dtype=bf16 ", sizes));
    EXPECT_NEAR(best_us(concat("matmul dtype=bf16 b_layout=kn ", sizes)) / nk, 1, 0.05) << sizes;
  }
}

TEST_F(CostModelTest, GatedProductsCostWhatTheirTwoProductsDo) {
  for (const int m : {8, 64, 2048}) {
    const double gated =
        best_us(concat("matmul m=", m, " k=4096 n=14336 dtype=bf16 gate=stacked activation=silu"));
    EXPECT_NEAR(gated / best_us(concat("matmul m=", m, " k=4096 n=28672 dtype=bf16")), 1, 0.1) << m;
  }
}

TEST_F(CostModelTest, OddRowsCostTheirCopies) {
  const auto wave = [&](int k) {
    return best_us(concat("matmul m=4096 n=4096 k=", k, " dtype=bf16"), "matmul/persistent_wave");
  };
  const double copies = 2 * 2 * 4096.0 * 4097 * 2 / (h200_.dram_gbps * 1e3);
  EXPECT_GT(wave(4097), wave(4104) + copies);
  EXPECT_LT(wave(4097), wave(4104) + 1.5 * copies);
}

TEST_F(CostModelTest, FewRowsOfEitherOperandCostTheSameButForTheEndOfTheTile) {
  const double of_a = best_us("matmul m=8 n=8192 k=8192 dtype=bf16", "matmul/skinny");
  const double of_b = best_us("matmul m=8192 n=8 k=8192 dtype=bf16", "matmul/skinny");
  EXPECT_GE(of_b, of_a) << "its results are stored row by row";
  EXPECT_NEAR(of_b / of_a, 1, 0.01);
}

TEST_F(CostModelTest, EarlyStartsCostProductsTheirOrderAndGainClustersTime) {
  const auto gain = [&](const char* text, std::string_view configuration) {
    const CandidateList list = enumerate(text);
    const auto us_of = [&](int early) {
      const std::string wanted = concat(configuration, " PROGRAMMATIC=", early);
      const auto found = std::ranges::find_if(list.candidates, [&](const Candidate& candidate) {
        return candidate.id().find(wanted) != std::string::npos;
      });
      return list.predicted_us.at(static_cast<std::size_t>(found - list.candidates.begin()));
    };
    return us_of(0) - us_of(1);
  };
  const char* const wide = "matmul m=128 n=10240 k=8192 dtype=bf16";
  EXPECT_LT(gain(wide,
                 "BM=64 BN=176 BK=64 CM=1 CN=1 SPLIT=1 TRANSPOSED=0 OVERLAP=0 PINGPONG=0 STAGES=6 "
                 "PERSISTENT=1 GROUP=8"),
            0);
  EXPECT_GT(gain(wide,
                 "BM=64 BN=176 BK=64 CM=2 CN=2 SPLIT=1 TRANSPOSED=0 OVERLAP=0 PINGPONG=0 STAGES=6 "
                 "PERSISTENT=1 GROUP=8"),
            0);
  EXPECT_GT(gain("matmul m=1024 n=1024 k=1024 dtype=bf16",
                 "BM=64 BN=128 BK=64 CM=1 CN=1 SPLIT=1 TRANSPOSED=0 OVERLAP=0 PINGPONG=0 STAGES=8 "
                 "PERSISTENT=1 GROUP=8"),
            0);
}

}  // namespace
}  // namespace kernwright
