#include "model/candidate/config_header.h"

#include <gtest/gtest.h>

#include "tests/model/samples.h"

namespace kernwright {
namespace {

class ConfigHeaderTest : public ::testing::Test {
 protected:
  std::string header(std::int64_t rows, std::int64_t stages, std::int64_t group,
                     const Problem& problem = scale_problem(100, 256)) {
    const Configuration point({{"ROWS", rows}, {"STAGES", stages}, {"GROUP", group}});
    const Result<Candidate> made =
        make_candidate(template_, BoundProblem::bind(operation_, problem).value(), point, h200());
    EXPECT_TRUE(made) << made.error().message;
    return config_header(*made);
  }

  static bool has(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
  }

  Operation operation_ = scale_operation();
  KernelTemplate template_ = scale_template(operation_);
};

TEST_F(ConfigHeaderTest, HoldsWhatTheCompilerMayKnow) {
  const std::string text = header(8, 2, 4);
  for (const char* line :
       {"using dtype_t = kernwright::bf16;", "constexpr int dtype_bf16 = 0;",
        "constexpr int dtype_bytes = 2;", "constexpr int weight_scale = 1;",
        "constexpr int weight = 1;", "constexpr int n = 256;", "constexpr int ROWS = 8;",
        "constexpr int STAGES = 2;", "constexpr int SMEM_BYTES = 8192;",
        "#include <kernwright/math/types.cuh>"}) {
    EXPECT_TRUE(has(text, line)) << line;
  }
  for (const char* name : {" m =", " GROUP =", " tiles =", "sm_count", "smem_per_block_optin"}) {
    EXPECT_FALSE(has(text, name)) << name;
  }
}

TEST_F(ConfigHeaderTest, RulesAndDerivedValuesPointAtTheManifest) {
  const std::string text = header(8, 2, 4);
  EXPECT_TRUE(has(text,
                  "#line 15 \"scale/boxes/manifest.json\"\n"
                  "constexpr long long SMEM_BYTES = STAGES * ROWS * n * dtype_bytes;\n"
                  "#line 15 \"scale/boxes/manifest.json\"\n"
                  "static_assert(SMEM_BYTES == 8192, "
                  "\"derived value SMEM_BYTES: the host computed 8192\");\n"));
  EXPECT_TRUE(has(text,
                  "#line 20 \"scale/boxes/manifest.json\"\n"
                  "static_assert(ROWS * STAGES <= 128, "
                  "\"rule \\\"ROWS * STAGES <= 128\\\" failed: no more rows in flight\");\n"));
}

TEST_F(ConfigHeaderTest, RunTimeValuesDoNotChangeTheText) {
  EXPECT_EQ(header(8, 2, 4), header(8, 2, 1, scale_problem(777, 256)));
  EXPECT_NE(header(8, 2, 4), header(8, 4, 4));
  EXPECT_NE(header(8, 2, 4), header(8, 2, 4, scale_problem(100, 512)));
  EXPECT_NE(header(8, 2, 4), header(8, 2, 4, scale_problem(100, 256).with("weight", "none")));
}

TEST_F(ConfigHeaderTest, BoundValuesAreGivenAndNotComputedAgain) {
  template_ = scale_template(operation_, replaced(replaced(kScaleManifest, kTiles, kBoundTiles),
                                                  "ROWS * STAGES <= 128", "tiles < 1000"));
  const std::string text = header(8, 2, 4);
  EXPECT_TRUE(has(text, "constexpr int tiles = 13;"));
  EXPECT_FALSE(has(text, "ceil_div(m"));
  EXPECT_TRUE(has(text, "static_assert(tiles < 1000, "));
  EXPECT_EQ(text, header(8, 2, 1)) << "a run-time parameter does not change it";
  EXPECT_NE(text, header(8, 2, 4, scale_problem(777, 256)));
}

TEST_F(ConfigHeaderTest, ADerivedValueOfTheOperationIsGivenWhereItIsConstant) {
  operation_ =
      parse_operation(replaced(kScaleOperation, "\"tensors\"",
                               R"("derived": {"pairs": "n / 2", "all": "m * pairs"}, "tensors")"),
                      "scale/operation.json", "")
          .value();
  template_ = scale_template(operation_, replaced(kScaleManifest, "ROWS * STAGES <= 128",
                                                  "ROWS * STAGES <= pairs && all > 0"));
  const std::string text = header(8, 2, 4);
  EXPECT_TRUE(has(text, "constexpr int pairs = 128;"));
  EXPECT_FALSE(has(text, "all"));
  EXPECT_FALSE(has(text, "no more rows in flight")) << "the rule names a run-time value";
  template_ = scale_template(
      operation_, replaced(kScaleManifest, "STAGES * ROWS * n *", "STAGES * ROWS * 2 * pairs *"));
  EXPECT_TRUE(has(header(8, 2, 4), "static_assert(SMEM_BYTES == 8192"));
  const auto taken = parse_manifest(replaced(kScaleManifest, "\"tiles\"", "\"pairs\""), "m.json",
                                    "scale/boxes", operation_);
  EXPECT_FALSE(taken);
}

TEST_F(ConfigHeaderTest, WideValuesAreLongLong) {
  template_ = scale_template(
      operation_,
      replaced(kScaleManifest, "\"tiles\":", "\"WIDE\": \"-2147483648 * n\", \"tiles\":"));
  const std::string text = header(8, 2, 4);
  EXPECT_TRUE(has(text, "constexpr long long WIDE = -549755813888;"));
}

TEST_F(ConfigHeaderTest, ReasonsAreQuoted) {
  template_ = scale_template(
      operation_, replaced(kScaleManifest, "no more rows in flight", R"(a \"b\" \\ c\nd)"));
  EXPECT_TRUE(has(header(8, 2, 4), R"(failed: a \"b\" \\ c d");)"));
}

TEST_F(ConfigHeaderTest, ReferenceSeesFlagsAndDtypesOnly) {
  const std::string text = reference_config_header(
      BoundProblem::bind(operation_, scale_problem(100, 256, "fp32")).value());
  EXPECT_TRUE(has(text, "using dtype_t = float;"));
  EXPECT_TRUE(has(text, "constexpr int weight = 1;"));
  EXPECT_FALSE(has(text, " n ="));
  EXPECT_FALSE(has(text, "static_assert"));
}

}  // namespace
}  // namespace kernwright
