#include <algorithm>
#include <set>

#include "tests/cli/walkthrough.h"

namespace kernwright {
namespace {

/// Breaks the walk-through's template in one place each.
class CheckToolkitTest : public WalkthroughFixture<ToolkitProgramTest> {
 protected:
  void expect_defect(const std::vector<std::string>& parts) {
    const Ran ran = kernwright({"check", templates(), "--samples", "1"});
    EXPECT_EQ(ran.exit_code, 1) << ran.out << ran.err;
    for (const std::string& part : parts) {
      EXPECT_NE((ran.out + ran.err).find(part), std::string::npos) << part << " is not in:\n"
                                                                   << ran.out << ran.err;
    }
  }
  std::string place(const std::string& file) const { return templates() + "/scaled_add/" + file; }

  void write_parameters_by_hand() {
    edit("tiles/kernel.cu", "KW_PARAMETERS(scaled_add_tiles)",
         "const dtype_t* x, const dtype_t* y, dtype_t* z, long long n, float alpha");
    edit("reference.cu", "KW_PARAMETERS(scaled_add_reference)",
         "const dtype_t* x, const dtype_t* y, float* z_reference, float* z_magnitude, long long n, "
         "float alpha");
  }
};

TEST_F(CheckToolkitTest, AFolderOfOnesOwnIsCheckedAloneForEveryDtypeAndArchitecture) {
  const Ran ran = kernwright({"check", templates(), "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.out << ran.err;
  const nlohmann::json report = ran.json();
  EXPECT_EQ(report["templates"], 1);
  EXPECT_EQ(report["defects"], 0);
  std::set<std::string> targets;
  std::set<std::string> problems;
  for (const nlohmann::json& row : report["compiled"]) {
    const std::string name = row["template"];
    EXPECT_EQ(name.rfind("scaled_add/", 0), 0U) << row;
    EXPECT_GT(row["registers"], 0) << row;
    if (name != "scaled_add/tiles") continue;
    targets.insert(row["target"]);
    problems.insert(row["problem"]);
  }
  EXPECT_EQ(targets, (std::set<std::string>{"sm_80", "sm_86", "sm_89", "sm_90"}));
  EXPECT_EQ(problems, (std::set<std::string>{"scaled_add n=16777216 dtype=bf16",
                                             "scaled_add n=16777216 dtype=fp32"}));
}

TEST_F(CheckToolkitTest, AllCompilesEveryValidConfigurationInEveryDtypeForOneSku) {
  for (const auto& [options, target] :
       {std::pair<std::vector<std::string>, std::string>{{}, "sm_90"},
        {{"--sku", "a100_80"}, "sm_80"}}) {
    std::vector<std::string> words{"check", templates(), "--all", "--json"};
    words.insert(words.end(), options.begin(), options.end());
    const Ran ran = kernwright(std::move(words));
    ASSERT_EQ(ran.exit_code, 0) << ran.out << ran.err;
    const nlohmann::json report = ran.json();
    std::set<std::pair<std::string, std::string>> compiled;
    for (const nlohmann::json& row : report["compiled"]) {
      if (row["template"] != "scaled_add/tiles") continue;
      EXPECT_EQ(row["target"], target);
      compiled.emplace(row["problem"], row["configuration"]);
    }
    // 19 of 25 configurations have a tile of 256 to 4096.
    EXPECT_EQ(compiled.size(), 2 * 19U);
  }
}

TEST_F(CheckToolkitTest, AllOfATemplateForOneFlagsValueIsCompiledForThat) {
  edit("operation.json", "\"tensors\": [",
       R"("flags": {"order": {"values": ["xy", "yx"], "default": "xy"}}, "tensors": [)");
  edit("tiles/manifest.json", "\"dims\":", R"("when": ["order == order_yx"], "dims":)");
  const Ran ran = kernwright({"check", templates(), "--all", "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.out << ran.err;
  const nlohmann::json report = ran.json();
  std::size_t compiled = 0;
  for (const nlohmann::json& row : report["compiled"]) {
    if (row["template"] != "scaled_add/tiles") continue;
    EXPECT_EQ(row["problem"], "scaled_add n=16777216 dtype=bf16 order=yx");
    ++compiled;
  }
  EXPECT_EQ(compiled, 19U);
}

TEST_F(CheckToolkitTest, ATemplateForFewRowsIsTriedWithEveryDtypeToo) {
  edit("tiles/manifest.json", "\"dims\":", R"("when": ["n <= 1024"], "dims":)");
  const Ran ran = kernwright({"check", templates(), "--samples", "0", "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.out << ran.err;
  const nlohmann::json report = ran.json();
  std::set<std::string> problems;
  for (const nlohmann::json& row : report["compiled"]) {
    if (row["template"] == "scaled_add/tiles") problems.insert(row["problem"]);
  }
  EXPECT_EQ(problems,
            (std::set<std::string>{"scaled_add n=1 dtype=bf16", "scaled_add n=1 dtype=fp32"}));
}

TEST_F(CheckToolkitTest, ADtypeThatAFlagAllowsIsTriedWithThatFlag) {
  edit("operation.json", "\"tensors\": [",
       R"("flags": {"lossy": {"values": ["refuse", "allow"], "default": "refuse"}},
          "requires": [{"rule": "dtype == dtype_bf16 || lossy == lossy_allow", "why": "so"}],
          "tensors": [)");
  const Ran ran = kernwright({"check", templates(), "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.out << ran.err;
  const nlohmann::json report = ran.json();
  std::set<std::string> problems;
  for (const nlohmann::json& row : report["compiled"]) problems.insert(row["problem"]);
  EXPECT_TRUE(problems.contains("scaled_add n=16777216 dtype=fp32 lossy=allow")) << ran.out;
  EXPECT_FALSE(problems.contains("scaled_add n=16777216 dtype=fp32")) << ran.out;
}

TEST_F(CheckToolkitTest, ADefectThatNoSampleHasIsAmongAll) {
  edit("tiles/kernel.cu", "dtype_t b[ITEMS];",
       "static_assert(THREADS != 512 || ITEMS != 8 || sizeof(dtype_t) == 2);\n  dtype_t b[ITEMS];");
  EXPECT_EQ(kernwright({"check", templates(), "--samples", "0"}).exit_code, 0);
  const Ran ran = kernwright({"check", templates(), "--all"});
  EXPECT_EQ(ran.exit_code, 1) << ran.err;
  EXPECT_NE(ran.out.find("dtype=fp32  THREADS=512 ITEMS=8"), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find(", 1 defect\n"), std::string::npos) << ran.out;
}

TEST_F(CheckToolkitTest, ADefectOfManyCompilesIsPrintedOnce) {
  edit("tiles/kernel.cu", "a[i] = x[first + i * THREADS];", "a[i] = y_of_nobody;");
  const Ran ran = kernwright({"check", templates(), "--samples", "2"});
  EXPECT_EQ(ran.exit_code, 1);
  const auto times = [&](std::string_view part) {
    int count = 0;
    for (std::size_t at = ran.out.find(part); at != std::string::npos;
         at = ran.out.find(part, at + 1))
      ++count;
    return count;
  };
  EXPECT_EQ(times("\"y_of_nobody\" is undefined"), 1) << ran.out;
  EXPECT_EQ(times("DEFECT"), 1) << ran.out;
  EXPECT_EQ(times("\n  and "), 1) << ran.out;
  EXPECT_EQ(times("ok  "), 0) << ran.out;
}

TEST_F(CheckToolkitTest, WhatIsRightHasALineOnlyWhereThatIsAskedFor) {
  const Ran terse = kernwright({"check", templates(), "--samples", "0", "--sku", "h200"});
  EXPECT_EQ(terse.exit_code, 0) << terse.out;
  EXPECT_EQ(terse.out.find("ok  "), std::string::npos) << terse.out;
  const Ran verbose =
      kernwright({"check", templates(), "--samples", "0", "--sku", "h200", "--verbose"});
  EXPECT_NE(verbose.out.find("ok      scaled_add/tiles"), std::string::npos) << verbose.out;
}

TEST_F(CheckToolkitTest, LimitsAndSizedIntegersAreThere) {
  edit("tiles/kernel.cu", "a[i] = x[first + i * THREADS];",
       "a[i] = from_float<dtype_t>(fminf(to_float(x[first + i * THREADS]), INFINITY + NAN + "
       "HUGE_VALF + FLT_MAX + static_cast<float>(INT_MAX + uint32_t{1} + int64_t{LLONG_MAX})));");
  const Ran ran = kernwright({"check", templates(), "--samples", "0", "--sku", "h200"});
  EXPECT_EQ(ran.exit_code, 0) << ran.out;
}

TEST_F(CheckToolkitTest, ASyntaxErrorHasTheSourcesLine) {
  edit("tiles/kernel.cu", "a[i] = x[first + i * THREADS];", "a[i] = x[first + i * THREADS]");
  expect_defect({"scaled_add/tiles/kernel.cu(15)", "expected a \";\""});
}

TEST_F(CheckToolkitTest, ASyntaxErrorOfTheReferenceHasItsLine) {
  edit("reference.cu", "z_reference[i] =", "values[i] =");
  expect_defect({"scaled_add/reference.cu(9)", "\"values\" is undefined"});
}

TEST_F(CheckToolkitTest, AnUnfusedFormThatDoesNotFitTogetherIsADefect) {
  edit("operation.json", "\"example\":",
       R"("unfused": [{"problem": "vector_add n={n + 1} dtype={dtype}",
                      "tensors": {"a": "x", "b": "y", "c": "z"}}], "example":)");
  expect_defect(
      {"DEFECT  scaled_add", "tensor a: 16777217 elements of bf16, but x has 16777216 of bf16"});
}

TEST_F(CheckToolkitTest, ADtypeThatDoesNotCompileIsADefectAlthoughTheExampleDoes) {
  edit("tiles/kernel.cu", "dtype_t a[ITEMS];", "bf16 a[ITEMS];");
  expect_defect({"DEFECT  scaled_add/tiles", "dtype=fp32", "kernel.cu(14)"});
}

TEST_F(CheckToolkitTest, AnUnknownNameInAnExpressionHasTheManifestsLine) {
  edit("tiles/manifest.json", "\"TILE\": \"THREADS * ITEMS\"", "\"TILE\": \"THREADS * ITEM\"");
  expect_defect({place("tiles/manifest.json:13: derived.TILE"), "unknown name \"ITEM\""});
}

TEST_F(CheckToolkitTest, AKernelThatTheSourceDoesNotHaveIsNamedWithThoseItHas) {
  write_parameters_by_hand();
  edit("tiles/manifest.json", "\"kernel\": \"scaled_add_tiles\"",
       "\"kernel\": \"scaled_add_tile\"");
  expect_defect(
      {place("tiles/manifest.json:21"), "\"scaled_add_tile\"", "there are: scaled_add_tiles"});
}

TEST_F(CheckToolkitTest, ALaunchThatNoDeviceTakesHasTheManifestsLine) {
  edit("tiles/manifest.json", "\"block\": [\"THREADS\"]", "\"block\": [\"THREADS * 8\"]");
  expect_defect({place("tiles/manifest.json:21: launch scaled_add_tiles"), "2048"});
}

TEST_F(CheckToolkitTest, ALaunchThatDoesNotFitItsKernelIsADefectAndNeverAnswers) {
  write_parameters_by_hand();
  edit("tiles/manifest.json", R"(, {"scalar": "alpha"})", "");
  const std::string misfit = "kernel scaled_add_tiles takes 5 parameters; the launch gives 4";
  expect_defect({place("tiles/manifest.json:21"), misfit, "\n  and "});
  const Ran ran = kernwright(
      {"tune", "scaled_add", "n=4096", "dtype=bf16", "--templates", templates(), "--sku", "h200"});
  EXPECT_EQ(ran.exit_code, 1) << ran.out;
  EXPECT_NE(ran.err.find("launch_failed"), std::string::npos) << ran.err;
  EXPECT_NE(ran.err.find(misfit), std::string::npos) << ran.err;

  edit("tiles/manifest.json", R"({"int64": "n"})",
       R"({"int64": "n"}, {"int64": "7", "name": "seven"})");
  expect_defect({"parameter 4 has 4 bytes; the launch gives 8 (int64)"});
}

TEST_F(CheckToolkitTest, ALaunchOfTheReferenceThatDoesNotFitIsADefect) {
  write_parameters_by_hand();
  edit("operation.json", R"({"int64": "n"},)", R"({"int32": "n"},)");
  expect_defect(
      {place("operation.json:17"),
       "kernel scaled_add_reference: parameter 4 has 8 bytes; the launch gives 4 (int32)"});
}

TEST_F(CheckToolkitTest, AnOutputThatNobodyWritesOrMeasuresIsADefect) {
  edit("tiles/manifest.json", R"({"tensor": "z"})", R"({"tensor": "x", "name": "z"})");
  edit("operation.json", R"({"magnitude": "z"})", R"({"tensor": "x", "name": "z_magnitude"})");
  expect_defect({place("tiles/manifest.json: no launch is given output z"),
                 place(R"(operation.json:17: the reference is given no {"magnitude": "z"})")});
}

TEST_F(CheckToolkitTest, AValueThatCanNeverRunIsADefectAndOneThatRulesForbidIsNoted) {
  edit("tiles/manifest.json", "512, 1024]", "512, 1024, 2048, 8192]");
  expect_defect({place("tiles/manifest.json: parameters: no candidate with THREADS=2048 can run"),
                 "\"THREADS\" is 2048, not in 1 to 1024", "NOTE  scaled_add/tiles\n",
                 "has a candidate with THREADS=8192\n",
                 ", 1 defect\ncompiled only, nothing was run"});
}

TEST_F(CheckToolkitTest, TheSameRefusalOfPtxasIsPrintedOnce) {
  edit("tiles/kernel.cu", "dtype_t b[ITEMS];",
       "dtype_t b[ITEMS];\n  __shared__ float many[30000];\n  many[threadIdx.x] = n;\n"
       "  __syncthreads();\n  if (many[threadIdx.x * 7 % 30000] == 3) return;");
  expect_defect({"uses too much shared data (0x1d4c0 bytes", "\n  and ", "DEFECT"});
  const Ran ran = kernwright({"check", templates(), "--samples", "1"});
  EXPECT_EQ(ran.out.find("DEFECT"), ran.out.rfind("DEFECT")) << ran.out;
}

TEST_F(CheckToolkitTest, AFileThatIsNoJsonOrIsMissingIsNamed) {
  edit("tiles/manifest.json", "\"parameters\": {", "\"parameters\": {{");
  expect_defect({place("tiles/manifest.json:7")});
  edit("tiles/manifest.json", "\"parameters\": {{", "\"parameters\": {");
  std::filesystem::remove(place("reference.cu"));
  expect_defect({place("operation.json"), place("reference.cu")});
}

TEST_F(CheckToolkitTest, AFolderWithoutTemplatesSaysWhereTheyBelong) {
  const std::string empty = (dir_ / "empty").string();
  std::filesystem::create_directory(empty);
  const Ran ran = kernwright({"check", empty});
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_NE(ran.err.find(empty + "/<operation>/<template>/manifest.json"), std::string::npos)
      << ran.err;
  const Ran missing = kernwright({"check", empty + "/none", "--json"});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_EQ(missing.json()["defects"], 1);
}

}  // namespace
}  // namespace kernwright
