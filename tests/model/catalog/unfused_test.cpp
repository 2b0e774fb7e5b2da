#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/catalog/unfused_form.h"
#include "support/files.h"
#include "tests/model/samples.h"
#include "tests/results.h"
#include "tests/temp_dir.h"

namespace kernwright {
namespace {

using ::testing::HasSubstr;

/// Scaling and shifting of rows, as a fused operation of two kernels of `scale`.
constexpr std::string_view kTwice = R"json({
  "operation": "twice",
  "description": "d[m,n] = (a[m,n] * w[n] + beta) * w[n] + alpha, w left out by a flag",
  "dims": {"rows": {"bind": "bucket"}, "columns": {"bind": "exact"}},
  "dtypes": {"in": ["bf16", "fp32"]},
  "flags": {
    "weight": {"values": ["none", "scale"], "default": "scale"},
    "times": {"values": ["two", "one"], "default": "two"}
  },
  "tensors": [
    {"name": "x", "role": "in", "dtype": "in", "extent": ["rows", "columns"]},
    {"name": "w", "role": "in", "dtype": "fp32", "extent": ["columns"], "alignment": 32, "when": "weight == weight_scale"},
    {"name": "y", "role": "out", "dtype": "in", "extent": ["rows", "columns"]}
  ],
  "scalars": [{"name": "beta", "dtype": "fp32", "default": 2, "check": 3}],
  "inputs": {"timing": "normal", "exact": "none"},
  "tolerance": {"accumulate": "fp32"},
  "flops": "4 * rows * columns",
  "bytes": "2 * rows * columns * in_bytes",
  "unfused": [
    {"problem": "scale m={rows} n={columns} dtype={in} weight={weight}",
     "tensors": {"a": "x", "w": "w", "d": "once"}, "scalars": {"alpha": "beta"}},
    {"when": "times == times_two", "problem": "scale m={rows} n={columns * 1} dtype={in} weight={weight}",
     "tensors": {"a": ["more", "once"], "w": "w", "d": "y"}}
  ],
  "example": {"rows": 64, "columns": 256, "in": "bf16"},
  "reference": {
    "kernel": "twice_reference", "grid": ["1"], "block": ["256"],
    "arguments": [{"tensor": "x"}, {"tensor": "w"}, {"reference": "y"}, {"magnitude": "y"}, {"scalar": "beta"}]
  }
})json";

/// The error of reading `kTwice` with `from` replaced.
std::string refusal(std::string_view from, std::string_view to) {
  const auto operation = parse_operation(replaced(kTwice, from, to), "twice/operation.json", "");
  EXPECT_FALSE(operation);
  return operation ? std::string() : operation.error().message;
}

TEST(UnfusedReaderTest, NamesWhatItDoesNotKnow) {
  EXPECT_THAT(refusal("m={rows}", "m={row}"),
              HasSubstr("unfused[0].problem: \"row\": unknown name \"row\""));
  EXPECT_THAT(refusal("m={rows}", "m={rows"), HasSubstr("unfused[0].problem: \"rows n={columns\""));
  EXPECT_THAT(refusal("weight={weight}\",\n     \"tensors\": {\"a\": \"x\"",
                      "weight={weight\",\n     \"tensors\": {\"a\": \"x\""),
              HasSubstr("no } behind {weight"));
  EXPECT_THAT(refusal("\"alpha\": \"beta\"", "\"alpha\": \"gamma\""),
              HasSubstr("unfused[0].scalars.alpha: \"gamma\" is no scalar of twice"));
  EXPECT_THAT(refusal("\"a\": \"x\"", "\"a\": []"), HasSubstr("at least one name is needed"));
  EXPECT_THAT(refusal("\"times == times_two\"", "\"times == 2 +\""), HasSubstr("unfused[1].when"));
  EXPECT_THAT(refusal("\"d\": \"once\"}", "\"d\": \"once\"}, \"scalar\": {}"),
              HasSubstr("unfused[0].scalar: unknown key"));
}

class UnfusedFormTest : public ::testing::Test {
 protected:
  /// The form of a problem of `kTwice` with `from` replaced, in a catalog that has `scale` too.
  Result<UnfusedForm> form(const std::string& problem, std::string_view from = "twice",
                           std::string_view to = "twice") {
    write("scale", std::string(kScaleOperation));
    write("twice", replaced(kTwice, from, to));
    catalog_ = must(Catalog::load({folder_.path()}));
    const Operation& twice = *catalog_->operation("twice").value();
    return unfused_form(*catalog_,
                        BoundProblem::bind(twice, Problem::parse(problem).value()).value());
  }
  std::string refusal(std::string_view from, std::string_view to,
                      const std::string& problem = kProblem) {
    const auto refused = form(problem, from, to);
    EXPECT_FALSE(refused);
    return refused ? std::string() : refused.error().message;
  }

  static constexpr const char* kProblem = "twice rows=8 columns=16 in=bf16";

 private:
  void write(const std::string& name, const std::string& operation) {
    ASSERT_TRUE(publish_file(folder_ / name / "operation.json", operation));
    ASSERT_TRUE(publish_file(folder_ / name / "reference.cu", ""));
  }
  ScopedTempDir folder_;
  std::shared_ptr<const Catalog> catalog_;
};

TEST_F(UnfusedFormTest, WiresTensorsAndScalars) {
  const auto two = must(form(kProblem));
  ASSERT_EQ(two.kernels.size(), 2U);
  EXPECT_EQ(two.fused_tensors, 3U);
  ASSERT_EQ(two.tensors.size(), 4U);
  EXPECT_EQ(two.tensors[3].name, "once");
  EXPECT_EQ(two.tensors[3].dtype, DType::bf16);
  EXPECT_EQ(two.tensors[3].elements(), 128);
  EXPECT_EQ(two.kernels[0].problem.text(), "scale m=8 n=16 dtype=bf16");
  EXPECT_EQ(two.kernels[0].tensors, (std::vector<std::size_t>{0, 1, 3}));
  EXPECT_EQ(two.kernels[0].scalars, std::vector<double>{3}) << "what checks pass for beta";
  EXPECT_EQ(two.kernels[1].tensors, (std::vector<std::size_t>{3, 1, 2}));
  EXPECT_EQ(two.kernels[1].scalars, std::vector<double>{0.5}) << "scale's default";

  const auto bare = must(form("twice rows=8 columns=16 in=fp32 weight=none"));
  EXPECT_EQ(bare.kernels[1].problem.text(), "scale m=8 n=16 dtype=fp32 weight=none");
  EXPECT_EQ(bare.kernels[1].tensors, (std::vector<std::size_t>{2, 1}));
}

TEST_F(UnfusedFormTest, OneKernelIsNone) {
  EXPECT_THAT(
      form("twice rows=8 columns=16 in=bf16 times=one"),
      Fails(ErrorCode::not_found,
            "twice rows=8 columns=16 in=bf16 times=one has no unfused form: it is one kernel as it "
            "is"));
}

TEST_F(UnfusedFormTest, SaysWhatDoesNotFitTogether) {
  EXPECT_THAT(refusal("scale m={rows}", "scaled m={rows}"),
              HasSubstr("twice rows=8 columns=16 in=bf16: step 0 of its unfused form: no operation "
                        "\"scaled\""));
  EXPECT_THAT(refusal("m={rows}", "m={rows - 8}"), HasSubstr("step 0"));
  EXPECT_THAT(refusal("m={rows}", "m={rows + 1}"),
              HasSubstr("tensor a: 144 elements of bf16, but x has 128 of bf16"));
  EXPECT_THAT(refusal("dtype={in}", "dtype=fp32"),
              HasSubstr("tensor a: 128 elements of fp32, but x has 128 of bf16"));
  EXPECT_THAT(refusal("\"a\": \"x\"", "\"b\": \"x\""), HasSubstr("scale has no tensor b"));
  EXPECT_THAT(refusal("\"a\": \"x\", ", ""),
              HasSubstr("tensor a: the step does not say what it is"));
  EXPECT_THAT(refusal("\"a\": \"x\"", "\"a\": \"y\""), HasSubstr("tensor a: y is not written yet"));
  EXPECT_THAT(refusal("\"a\": \"x\"", "\"a\": [\"z\", \"v\"]"),
              HasSubstr("tensor a: there is no z, v yet"));
  EXPECT_THAT(refusal("\"d\": \"once\"", "\"d\": \"y\""), HasSubstr("step 1"));
  EXPECT_THAT(refusal("[\"more\", \"once\"]", "\"x\""), HasSubstr("never reads once"));
  EXPECT_THAT(refusal("\"d\": \"y\"", "\"d\": \"last\""), HasSubstr("never writes y"));
  EXPECT_THAT(refusal("\"d\": \"once\"", "\"d\": \"x\""), HasSubstr("x is there already"));
  EXPECT_THAT(
      refusal("\"d\": \"once\"", "\"d\": \"w\"", "twice rows=8 columns=16 in=bf16 weight=none"),
      HasSubstr("the problem has no w"));
  EXPECT_THAT(refusal("\"alignment\": 32, ", ""),
              HasSubstr("tensor w: is aligned to 32 bytes, but w to 16"));
  EXPECT_THAT(refusal("\"alpha\": \"beta\"", "\"gamma\": \"beta\""),
              HasSubstr("scale has no scalar gamma"));
  EXPECT_THAT(refusal("\"check\": 3", "\"check\": 3, \"when\": \"times == times_one\""),
              HasSubstr("twice rows=8 columns=16 in=bf16 takes no scalar beta"));
}

}  // namespace
}  // namespace kernwright
