#include "model/catalog/fragment.h"

#include <gtest/gtest.h>
#include <vector>

#include "model/candidate/candidate.h"
#include "model/candidate/config_header.h"
#include "tests/model/samples.h"

namespace kernwright {
namespace {

/// The fragment that the manifests below extend.
constexpr std::string_view kRows = R"json({
  "description": "rows",
  "source": "kernel.cu",
  "arch": {"min": 80},
  "dims": {"m": "runtime", "n": "constant"},
  "parameters": {
    "ROWS": [1, 2, 4],
    "AHEAD": null,
    "GROUP": {"values": [1, 4], "bind": "runtime"}
  },
  "default": {"ROWS": 2, "GROUP": 1},
  "derived": {
    "STREAMS": "1",
    "BYTES": "STREAMS * ROWS * n * dtype_bytes",
    "blocks": "ceil_div(m, ROWS)"
  },
  "rules": [
    {"rule": "BYTES <= 4096", "why": "more bytes do not fit"}
  ],
  "launches": [
    {"grid": ["blocks"], "block": ["128"], "waits": "1"}
  ]
})json";

constexpr std::string_view kManifest = R"json({
  "extends": "mine/rows.json",
  "operation": "scale",
  "parameters": {"AHEAD": [1, 2], "LAST": [0]},
  "default": {"AHEAD": 1, "LAST": 0, "ROWS": 4},
  "derived": {"STREAMS": "2", "THREADS": "64 * AHEAD"},
  "rules": [
    {"rule": "AHEAD <= ROWS", "why": "no more are on their way"}
  ],
  "launches": [
    {"kernel": "scale_rows", "block": ["THREADS"],
     "arguments": [{"tensor": "a"}, {"tensor": "w"}, {"tensor": "d"}]},
    {"kernel": "scale_rest", "grid": ["1"], "block": ["32"], "arguments": []}
  ]
})json";

class FragmentTest : public ::testing::Test {
 protected:
  Result<KernelTemplate> parse(std::string_view manifest, std::string_view rows = kRows) const {
    const std::vector<Fragment> fragments = {{"mine/rows.json", "dir/include/mine/rows.json", rows},
                                             {"mine/few.json", "dir/few.json", few_}};
    return parse_manifest(manifest, "m.json", "scale/rows", operation_, fragments);
  }

  void expect_error(std::string_view manifest, std::string_view rows,
                    const std::string& begin) const {
    const Result<KernelTemplate> made = parse(manifest, rows);
    ASSERT_FALSE(made) << begin;
    EXPECT_EQ(made.error().message.substr(0, begin.size()), begin);
  }

  const Operation operation_ = scale_operation();
  std::string few_ =
      R"({"extends": "mine/rows.json", "parameters": {"ROWS": [1]}, "default": {"ROWS": 1}})";
};

TEST_F(FragmentTest, MembersAreAddedAndTakenOverByName) {
  const Result<KernelTemplate> made = parse(kManifest);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->description, "rows");
  EXPECT_EQ(made->source_file, "kernel.cu");
  EXPECT_EQ(made->arch.min, 80);
  EXPECT_EQ(made->constant_dims, std::vector<std::string>{"n"});
  EXPECT_EQ(made->default_configuration.text(), "ROWS=4 AHEAD=1 GROUP=1 LAST=0")
      << "in the fragment's order, in which null keeps a place; what it does not know comes last";
  ASSERT_EQ(made->derived.size(), 4U);
  EXPECT_EQ(made->derived[0].name, "STREAMS");
  EXPECT_EQ(made->derived[0].expression.text(), "2");
  EXPECT_EQ(made->derived[3].name, "THREADS");
}

TEST_F(FragmentTest, RulesAndHabitsComeAfterThoseOfTheFragmentAndLaunchesAreMergedOneByOne) {
  const KernelTemplate made =
      parse(replaced(kManifest, "\"rules\": [",
                     R"("habits": [{"rule": "ROWS > 1", "why": "seldom gained"}], "rules": [)"),
            replaced(kRows, "\"rules\": [",
                     R"("habits": [{"rule": "m > 1", "why": "never gained"}], "rules": [)"))
          .value();
  ASSERT_EQ(made.habits.size(), 2U);
  EXPECT_EQ(made.habits[1].why, "seldom gained");
  ASSERT_EQ(made.rules.size(), 2U);
  EXPECT_EQ(made.rules[0].why, "more bytes do not fit");
  EXPECT_EQ(made.rules[1].why, "no more are on their way");
  ASSERT_EQ(made.launches.size(), 2U);
  EXPECT_EQ(made.launches[0].kernel, "scale_rows");
  EXPECT_EQ(made.launches[0].grid[0].text(), "blocks");
  EXPECT_EQ(made.launches[0].block[0].text(), "THREADS");
  EXPECT_EQ(made.launches[0].waits.text(), "1");
  EXPECT_EQ(made.launches[1].waits.text(), "0");
}

TEST_F(FragmentTest, NullTakesAMemberOut) {
  const Result<KernelTemplate> made = parse(replaced(
      kManifest, "\"STREAMS\": \"2\"", "\"STREAMS\": null, \"BYTES\": \"ROWS * n * dtype_bytes\""));
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->derived.front().name, "BYTES");
}

TEST_F(FragmentTest, FragmentsExtendOthers) {
  const Result<KernelTemplate> made =
      parse(replaced(replaced(kManifest, "mine/rows.json", "mine/few.json"), ", \"ROWS\": 4", ""));
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->space.parameters()[0].values, std::vector<std::int64_t>{1});
  EXPECT_EQ(made->default_configuration.at("ROWS"), 1);
  ASSERT_EQ(made->manifests.size(), 3U);
  EXPECT_EQ(made->manifests[0].name, "scale/rows/manifest.json");
  EXPECT_EQ(made->manifests[1].place, "dir/few.json");
  EXPECT_EQ(made->manifests[2].name, "include/mine/rows.json");
  EXPECT_EQ(made->manifests[2].text, kRows);
}

TEST_F(FragmentTest, ErrorsNameTheFileInWhichTheFieldStands) {
  expect_error(kManifest, replaced(kRows, "\"BYTES <= 4096\"", "\"SIZE <= 4096\""),
               "dir/include/mine/rows.json:18: rules[0].rule: \"SIZE <= 4096\": unknown name");
  expect_error(replaced(kManifest, "\"AHEAD <= ROWS\"", "\"AHEAD <= ROW\""), kRows,
               "m.json:8: rules[1].rule: \"AHEAD <= ROW\": unknown name");
  expect_error(replaced(kManifest, "\"AHEAD\": 1, ", ""), kRows,
               "m.json:5: default.AHEAD: missing");
  expect_error(kManifest, replaced(kRows, "\"grid\"", "\"gird\""),
               "dir/include/mine/rows.json:21: launches[0].gird: unknown key");
  expect_error(kManifest, "{\"source\": }", "dir/include/mine/rows.json:1: ");
  expect_error(kManifest, "[]", "dir/include/mine/rows.json:1: file: expected object, found array");
}

TEST_F(FragmentTest, WhatExtendsNothingKnownOrItselfIsRefused) {
  expect_error(replaced(kManifest, "mine/rows.json", "mine/row.json"), kRows,
               "m.json:2: extends: no fragment \"mine/row.json\", there are: mine/rows.json, "
               "mine/few.json");
  expect_error(replaced(kManifest, "\"mine/rows.json\"", "1"), kRows,
               "m.json:2: extends: expected string, found integer");
  expect_error(kManifest,
               replaced(kRows, "\"source\"", "\"extends\": \"mine/few.json\", \"source\""),
               "dir/few.json:1: extends: \"mine/rows.json\" extends itself");
}

TEST_F(FragmentTest, AFailedRuleNamesTheFileInWhichItStands) {
  const KernelTemplate made = parse(kManifest).value();
  const auto refusal = [&](std::int64_t n, std::int64_t ahead) {
    const Configuration point({{"ROWS", 1}, {"AHEAD", ahead}, {"GROUP", 1}, {"LAST", 0}});
    const BoundProblem problem = BoundProblem::bind(operation_, scale_problem(64, n)).value();
    return make_candidate(made, problem, point, h200()).error().message;
  };
  EXPECT_EQ(refusal(2048, 1).substr(0, 31), "dir/include/mine/rows.json:18: ");
  EXPECT_EQ(refusal(64, 2).substr(0, 10), "m.json:8: ");
}

TEST_F(FragmentTest, CompilersAreToldTheFileByItsNameInTheFolder) {
  const KernelTemplate made = parse(kManifest).value();
  const BoundProblem problem = BoundProblem::bind(operation_, scale_problem(64, 64)).value();
  const Candidate candidate =
      make_candidate(made, problem, made.default_configuration, h200()).value();
  const std::string header = config_header(candidate);
  EXPECT_NE(header.find("#line 14 \"include/mine/rows.json\"\nconstexpr long long BYTES ="),
            std::string::npos);
  EXPECT_NE(header.find("#line 6 \"scale/rows/manifest.json\"\nconstexpr long long STREAMS = 2"),
            std::string::npos);
}

}  // namespace
}  // namespace kernwright
