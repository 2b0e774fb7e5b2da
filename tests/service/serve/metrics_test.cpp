#include "service/serve/metrics.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <regex>
#include <set>
#include <string>

#include "support/text.h"
#include "tests/service/core_fixture.h"
#include "tests/temp_dir.h"

namespace kernwright {
namespace {

using ::testing::HasSubstr;

/// Returns the samples of a text in Prometheus' format, by name and labels, as they are written. If
/// the text breaks a rule of the format or of naming, the test fails and says which.
std::map<std::string, double> parse_exposition(const std::string& text) {
  static const std::regex comment(R"(# (HELP|TYPE) ([a-z][a-z0-9_]*) (.+))");
  static const std::regex sample(
      R"lit(([a-z][a-z0-9_]*)((?:\{(?:[a-z_]+="[^"\\\n]*",?)*\})?) ([0-9.e+-]+))lit");
  std::map<std::string, double> samples;
  std::set<std::string> helped;
  std::map<std::string, std::string> types;
  std::string family;
  EXPECT_TRUE(text.ends_with('\n'));
  for (const std::string_view line : split(text, '\n')) {
    if (line.empty()) continue;
    std::match_results<std::string_view::const_iterator> match;
    if (std::regex_match(line.begin(), line.end(), match, comment)) {
      family = match[2];
      if (match[1] == "HELP") {
        EXPECT_TRUE(helped.insert(family).second) << line;
      } else {
        EXPECT_TRUE(types.emplace(family, match[3]).second) << line;
      }
      continue;
    }
    if (!std::regex_match(line.begin(), line.end(), match, sample)) {
      ADD_FAILURE() << "no sample: " << line;
      continue;
    }
    EXPECT_EQ(match[1], family) << "samples of a family stand together, under its comments";
    EXPECT_TRUE(helped.contains(family) && types.contains(family)) << line;
    EXPECT_EQ(types[family] == "counter", family.ends_with("_total")) << line;
    EXPECT_TRUE(family.starts_with("kernwright_")) << line;
    EXPECT_TRUE(
        samples.emplace(concat(match[1].str(), match[2].str()), std::stod(match[3].str())).second)
        << line;
  }
  return samples;
}

Metrics sample_metrics() {
  return {.sku = "h200",
          .bundles = {},
          .lookups = {{Match::exact, MissReason::none, 3}, {Match::none, MissReason::absent, 1}},
          .compiles = 2,
          .compile_seconds = 1.25,
          .ready = true,
          .compiles_after_ready = 1,
          .loaded_kernels = 4,
          .loaded_bytes = 4096};
}

TEST(MetricsTest, EveryFigureHasItsSample) {
  const std::map<std::string, double> expected = {
      {"kernwright_ready", 1},
      {R"(kernwright_records_info{bundle="none",sku="h200"})", 1},
      {R"(kernwright_lookups_total{match="exact",reason="none"})", 3},
      {R"(kernwright_lookups_total{match="none",reason="absent"})", 1},
      {"kernwright_compiles_total", 2},
      {"kernwright_compile_seconds_total", 1.25},
      {"kernwright_compiles_after_ready_total", 1},
      {"kernwright_loaded_kernels_total", 4},
      {"kernwright_loaded_bytes_total", 4096}};
  EXPECT_EQ(parse_exposition(to_prometheus(sample_metrics())), expected);
}

TEST(MetricsTest, EachBundleIsNamed) {
  Metrics metrics = sample_metrics();
  metrics.bundles = {"aa", "bb"};
  const std::string text = to_prometheus(metrics);
  EXPECT_THAT(text, HasSubstr(R"(kernwright_records_info{bundle="aa",sku="h200"} 1)"));
  EXPECT_THAT(text, HasSubstr(R"(kernwright_records_info{bundle="bb",sku="h200"} 1)"));
  parse_exposition(text);
}

TEST(MetricsTest, PromtoolFindsNothingToSay) {
  if (std::system("command -v promtool > /dev/null 2>&1") != 0) {
    GTEST_SKIP() << "there is no promtool (Debian's package prometheus)";
  }
  const ScopedTempDir folder;
  const std::string file = (folder.path() / "metrics").string();
  std::ofstream(file) << to_prometheus(sample_metrics());
  const std::string command = "promtool check metrics < " + file + " 2>&1";
  FILE* said = ::popen(command.c_str(), "r");
  ASSERT_NE(said, nullptr);
  std::string text;
  for (int c = 0; (c = std::fgetc(said)) != EOF;) text += static_cast<char>(c);
  EXPECT_EQ(::pclose(said), 0) << text;
  EXPECT_EQ(text, "");
}

class CoreMetricsTest : public ServiceCoreTest {
 protected:
  static std::map<std::string, double> of(const ServiceCore& core) {
    return parse_exposition(to_prometheus(core.metrics()));
  }
};

TEST_F(CoreMetricsTest, WhatAServiceDoesIsCounted) {
  const auto core = open();
  std::map<std::string, double> metrics = of(*core);
  EXPECT_EQ(metrics["kernwright_ready"], 0);
  EXPECT_EQ(metrics["kernwright_compiles_total"], 0);
  EXPECT_EQ(metrics["kernwright_loaded_kernels_total"], 0);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(core->get_best_kernel(problem_));
  metrics = of(*core);
  EXPECT_EQ(metrics[R"(kernwright_lookups_total{match="none",reason="absent"})"], 1);
  EXPECT_EQ(metrics["kernwright_compiles_total"], 1);
  EXPECT_GT(metrics["kernwright_compile_seconds_total"], 0);
  EXPECT_EQ(metrics["kernwright_loaded_kernels_total"], 1);
  EXPECT_EQ(metrics["kernwright_loaded_bytes_total"], 64) << "the fake compiler's digest";
  core->seal(SealMode::error);
  EXPECT_FALSE(core->get_best_kernel(vector_add(1 << 24, DType::bf16)));
  metrics = of(*core);
  EXPECT_EQ(metrics["kernwright_ready"], 1);
  EXPECT_EQ(metrics["kernwright_compiles_after_ready_total"], 1);
  EXPECT_EQ(metrics["kernwright_compiles_total"], 1);
}

TEST_F(CoreMetricsTest, WithoutAGpuNothingIsLoaded) {
  const auto core = open(MissPolicy::predict, "h200");
  ASSERT_TRUE(core->get_best_kernel(problem_));
  EXPECT_EQ(of(*core)["kernwright_loaded_kernels_total"], 0);
}

}  // namespace
}  // namespace kernwright
