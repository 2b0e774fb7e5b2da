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

TEST_F(ConfigHeaderTest, AKernelsParametersAreTheArgumentsOfItsLaunch) {
  const std::string text = header(8, 2, 4);
  EXPECT_TRUE(has(text,
                  "#define KW_PARAMETERS(kernel) KW_PARAMETERS_##kernel\n"
                  "#define KW_PARAMETERS_scale_boxes "
                  "const __grid_constant__ kernwright::TensorMap map_a, "
                  "const __grid_constant__ kernwright::TensorMap map_w, "
                  "const float* __restrict__ w, kernwright::config::dtype_t* __restrict__ d, "
                  "int m, long long elements, float alpha, unsigned char* counters\n"
                  "#define KW_PARAMETERS_scale_tail int GROUP\n"));
  EXPECT_TRUE(has(header(8, 2, 4, scale_problem(100, 256).with("weight", "none")),
                  "const float* __restrict__ w, "))
      << "an absent tensor is a null pointer of the same type";
}

TEST_F(ConfigHeaderTest, AnEntryMaySayItsNameAndItsType) {
  template_ = scale_template(
      operation_,
      replaced(replaced(kScaleManifest, R"({"workspace": "counters"})",
                        R"({"workspace": "counters", "type": "int* __restrict__"})"),
               R"({"tensor": "w"})", R"({"tensor": "w", "name": "weights", "type": "const W*"})"));
  EXPECT_TRUE(has(header(8, 2, 4), "const W* weights, "));
  EXPECT_TRUE(has(header(8, 2, 4), "float alpha, int* __restrict__ counters\n"));
}

TEST_F(ConfigHeaderTest, PointersToSharedMemoryAreNotRestrict) {
  template_ = scale_template(operation_, replaced(kScaleManifest, R"("kernel": "scale_boxes",)",
                                                  R"("kernel": "scale_boxes", "in_place": true,)"));
  EXPECT_TRUE(has(header(8, 2, 4), "const float* w, kernwright::config::dtype_t* d, "));
  operation_ = must(parse_operation(
      replaced(kScaleOperation, R"("role": "out",)", R"("role": "out", "in_place": "a",)"),
      "scale/operation.json", ""));
  template_ = scale_template(operation_, replaced(kScaleManifest, R"({"tensor": "w"})",
                                                  R"({"tensor": "w"}, {"tensor": "a"})"));
  EXPECT_TRUE(has(header(8, 2, 4),
                  "const float* __restrict__ w, const kernwright::config::dtype_t* a, "
                  "kernwright::config::dtype_t* d, "));
}

TEST_F(ConfigHeaderTest, APointerIsConstIfTheProblemWritesNothing) {
  operation_ = must(parse_operation(
      replaced(kScaleOperation, R"("role": "out",)",
               R"("role": "inout", "written": "weight == weight_scale ? m * n : 0",)"),
      "scale/operation.json", ""));
  template_ = scale_template(operation_);
  EXPECT_TRUE(has(header(8, 2, 4), " w, kernwright::config::dtype_t* __restrict__ d, "));
  EXPECT_TRUE(has(header(8, 2, 4, scale_problem(100, 256).with("weight", "none")),
                  " w, const kernwright::config::dtype_t* __restrict__ d, "));
}

TEST_F(ConfigHeaderTest, ReferencesReadTheirTensorsAndInputKernelsWriteThem) {
  operation_ = must(parse_operation(
      replaced(kScaleOperation, R"("inputs": {"timing": "normal", "exact": "small_integers"})",
               R"("inputs": {"draw": "draw.cu", "timing": "scale_timing", "exact": "scale_exact",
                  "grid": ["1"], "block": ["32"],
                  "arguments": [{"tensor": "w"}, {"scalar": "seed"}, {"scalar": "alpha"}]})"),
      "scale/operation.json", ""));
  const std::string text =
      reference_config_header(BoundProblem::bind(operation_, scale_problem(100, 256)).value());
  EXPECT_TRUE(has(text,
                  "#define KW_PARAMETERS_scale_reference const kernwright::config::dtype_t* a, "
                  "const float* w, kernwright::reference_t<kernwright::config::dtype_t>* "
                  "d_reference, float* d_magnitude, long long n, float alpha\n"
                  "#define KW_PARAMETERS_scale_timing float* w, long long seed, float alpha\n"
                  "#define KW_PARAMETERS_scale_exact float* w, long long seed, float alpha\n"));
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
