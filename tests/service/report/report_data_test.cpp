#include "service/report/report_data.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>

#include <nlohmann/json.hpp>

#include "service/report/report_signs.h"
#include "support/text.h"
#include "tests/service/report/known_record.h"
#include "tuner/cost/cost_model.h"

namespace kernwright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

class ReportDataTest : public ::testing::Test {
 protected:
  /// With trials that two parameters explain.
  ReportedRecord reported(int m) const {
    ReportedRecord reported{.record = known_win(m), .trials = {}, .no_trials = {}};
    const BoundProblem bound =
        catalog_->bind(Problem::parse(reported.record.key.problem).value()).value();
    reported.record.roofline_us = roofline_us(bound, find_profile("h200").value());
    reported.trials.emplace();
    for (int i = 0; i < 40; ++i) {
      reported.trials->rows.push_back(
          {.choice = {"matmul/skinny", Configuration({{"BM", 8 << (i % 2)}, {"STAGES", i}})},
           .us = 10.0 + 5 * (i % 2)});
    }
    return reported;
  }
  Json json(const ReportSources* before = nullptr) const {
    return Json::parse(report_json({.sources = sources_,
                                    .catalog = *catalog_,
                                    .names = {"cache"},
                                    .before = before,
                                    .before_name = "older"}));
  }
  std::vector<std::string> signs() const {
    std::vector<std::string> texts;
    for (const ReportSign& sign : report_signs(sources_)) texts.push_back(sign.text);
    return texts;
  }

  std::shared_ptr<const Catalog> catalog_ = Catalog::load({}).value();
  ReportSources sources_;
};

TEST_F(ReportDataTest, AProblemIsJudgedAsASweepJudgesIt) {
  sources_.records = {reported(16)};
  const Json all = json();
  const Json& problem = all["problems"][0];
  EXPECT_EQ(problem["problem"], "matmul m=16 n=4096 k=4096 dtype=bf16");
  EXPECT_EQ(problem["operation"], "matmul");
  EXPECT_NEAR(problem["us"].get<double>(), 10.01, 1e-9);
  EXPECT_EQ(problem["bound"], "memory");
  EXPECT_EQ(problem["support"], "supported");
  EXPECT_NEAR(problem["roofline"].get<double>(), problem["roofline_us"].get<double>() / 10.01,
              1e-3);
  EXPECT_THAT(problem["margin"], ElementsAre(0.02, 0.01, 0.03));
  EXPECT_NEAR(problem["default"][0].get<double>(), std::log(1.5), 1e-4);
  EXPECT_EQ(problem["work"]["flops"], 2LL * 16 * 4096 * 4096);
  EXPECT_EQ(problem["finalists"].size(), 3U) << "the default is one more";
  EXPECT_EQ(problem["finalists"][2]["default"], true);
  EXPECT_EQ(problem["finalists"][0]["configuration"]["BM"], 16);
  EXPECT_EQ(problem["trials"]["us"].size(), 40U);
  EXPECT_EQ(problem["trials"]["templates"][0]["template"], "matmul/skinny");
  EXPECT_EQ(problem["trials"]["explained"][0][0], "BM");
  EXPECT_EQ(all["devices"][0]["dram_gbps"], 4800);
  EXPECT_TRUE(all["signs"].empty());
}

TEST_F(ReportDataTest, ManyProblemsHaveFewerSamples) {
  sources_.records = {reported(1)};
  EXPECT_EQ(json()["problems"][0]["samples"]["us"].size(), 64U);
  for (std::size_t m = 2; m <= kMostWholeProblems + 1; ++m) {
    sources_.records.push_back(reported(static_cast<int>(m)));
  }
  const Json samples = json()["problems"][0]["samples"];
  EXPECT_EQ(samples["us"].size(), 32U);
  EXPECT_EQ(samples["each_of"], 2);
  EXPECT_EQ(samples["sm_mhz"][1], 1703) << "the median of 1702 and 1703, rounded";
  EXPECT_THAT(samples["dropped"], ElementsAre(4));
}

TEST_F(ReportDataTest, OfManyProblemsEachTakesLessThanTenKilobytes) {
  for (int m = 1; m <= 40; ++m) sources_.records.push_back(reported(m));
  for (ReportedRecord& one : sources_.records) {
    one.record.runners_up.resize(7, one.record.runners_up[0]);
    one.record.winner.measurement.samples_us.resize(256, 10.0 / 3);
    one.record.winner.measurement.sm_mhz.resize(256, 1755);
    one.trials->rows.resize(60, one.trials->rows[0]);
  }
  EXPECT_LT(json().dump().size(), 40U * 9'800) << "so that 500 stay below 5 MB";
}

TEST_F(ReportDataTest, WithoutTrialsItSaysWhy) {
  sources_.records = {reported(16)};
  sources_.records[0].trials.reset();
  sources_.records[0].no_trials = "they were not kept";
  EXPECT_EQ(json()["problems"][0]["trials"], Json({{"missing", "they were not kept"}}));
}

TEST_F(ReportDataTest, AProblemOfAnOperationThatIsNotHereIsShownAllTheSame) {
  sources_.records = {reported(16)};
  sources_.records[0].record.key.problem = "mine n=4 dtype=bf16";
  const Json problem = json()["problems"][0];
  EXPECT_FALSE(problem.contains("bound"));
  EXPECT_FALSE(problem.contains("work"));
  EXPECT_NEAR(problem["us"].get<double>(), 10.01, 1e-9);
}

TEST_F(ReportDataTest, TextOfAnyBytesIsValidJson) {
  sources_.records = {reported(16)};
  sources_.records[0].record.device_name = "\xff\"\n</script>";
  EXPECT_THAT(json()["problems"][0]["device"].get<std::string>(), HasSubstr("\"\n</script>"));
}

TEST_F(ReportDataTest, EachBadSignIsOneSentenceWithItsRecords) {
  for (int m = 1; m <= 6; ++m) sources_.records.push_back(reported(m));
  sources_.records[0].record.grade = RecordGrade::predicted;
  sources_.records[1].record.trust = Trust::c;
  sources_.records[1].record.audit.rows = {{"mig", Trust::b, ""}, {"host_load", Trust::c, "9"}};
  sources_.records[2].record.verdict = Verdict::unresolved;
  sources_.records[3].record.search.stop_reason = "budget";
  sources_.records[3].record.search.regret_estimate = 0.05;
  sources_.records[4].trials->rows[7].outcome = Outcome::wrong_result;
  sources_.records[5].record.environment.driver = "570";
  sources_.missing = {{"matmul m=9 n=9 k=9 dtype=bf16", "no record"}};
  sources_.defects = {"x"};
  EXPECT_THAT(
      signs(),
      ElementsAre(
          "1 file could not be read.", "1 problem has no record.",
          "1 record is a prediction: nothing was measured.",
          "1 record has trust C: to be measured again (host_load).",
          "1 race is unresolved: who is fastest is not known beyond doubt.",
          "1 search ended by the budget while what was not tried may be 2 % faster or more.",
          "In 1 search candidates crashed, hung or gave wrong results; none of them is served.",
          "The records come from 2 environments: drivers or compilers differ."));
  EXPECT_THAT(report_signs(sources_)[3].records, ElementsAre(1));
  EXPECT_EQ(json()["signs"].size(), 8U);
}

TEST_F(ReportDataTest, WhatWasBeforeIsComparedByKey) {
  sources_.records = {reported(1), reported(2), reported(3)};
  ReportSources before;
  before.records = {reported(2), reported(1), reported(7)};
  for (double& us : before.records[0].record.winner.measurement.samples_us) us *= 1.2;
  before.records[0].record.winner.choice.configuration = Configuration({{"BM", 8}});
  before.records[0].record.environment.driver = "570";
  const Json compare = json(&before)["compare"];
  EXPECT_EQ(compare["name"], "older");
  ASSERT_EQ(compare["rows"].size(), 2U);
  EXPECT_EQ(compare["rows"][0]["change"], "same");
  EXPECT_EQ(compare["rows"][0]["same_choice"], true);
  EXPECT_FALSE(compare["rows"][0].contains("driver"));
  EXPECT_EQ(compare["rows"][1]["index"], 1);
  EXPECT_EQ(compare["rows"][1]["change"], "faster");
  EXPECT_EQ(compare["rows"][1]["same_choice"], false);
  EXPECT_EQ(compare["rows"][1]["driver"], "570");
  EXPECT_EQ(compare["only_before"], 1);
  EXPECT_EQ(compare["only_after"], 1);
}

}  // namespace
}  // namespace kernwright
