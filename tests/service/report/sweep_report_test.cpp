#include "service/report/sweep_report.h"

#include <cmath>
#include <gtest/gtest.h>
#include <memory>

#include "model/catalog/catalog.h"
#include "tuner/cost/cost_model.h"

namespace kernwright {
namespace {

/// A winner of matmul that is supported, to be spoilt.
class SweepReportTest : public ::testing::Test {
 protected:
  SweepReportTest() { set_shape("matmul m=4096 n=4096 k=4096 dtype=bf16"); }

  void set_shape(const std::string& text) {
    record_.key.problem = text;
    record_.roofline_us = roofline_us(problem(), profile_);
    record_.winner.measurement = {{2 * record_.roofline_us}};
    record_.winner.launch_gap_us = 0.01 * record_.roofline_us;
    record_.trust = Trust::a;
    record_.verdict = Verdict::win;
    record_.runners_up.resize(1);
    record_.runners_up[0].slowdown = {std::log(1.03), 0.02, 0.04};
    record_.baseline.emplace();
    record_.baseline->slowdown = {0.2, 0.19, 0.21};
  }
  BoundProblem problem() const {
    return catalog_->bind(Problem::parse(record_.key.problem).value()).value();
  }
  ReportRow row() const { return report_row(record_, problem(), profile_); }

  std::shared_ptr<const Catalog> catalog_ = Catalog::load({}).value();
  DeviceProfile profile_ = find_profile("h200").value();
  TuningRecord record_;
};

TEST_F(SweepReportTest, AClearWinnerOnATrustedDeviceIsSupported) {
  EXPECT_EQ(row().support, Support::supported);
  EXPECT_NEAR(row().roofline_share, 0.5, 1e-9);
  EXPECT_NEAR(row().margin, 0.03, 1e-9);
  EXPECT_EQ(row().bound, Bound::compute);
  EXPECT_EQ(row().next_evidence, "");
}

TEST_F(SweepReportTest, TheBoundFollowsTheShape) {
  set_shape("matmul m=1 n=4096 k=4096 dtype=bf16");
  EXPECT_EQ(row().bound, Bound::memory);
  record_.winner.launch_gap_us = record_.winner.measurement.samples_us[0];
  EXPECT_EQ(row().bound, Bound::launch);
}

TEST_F(SweepReportTest, WhatIsNotClearIsMeasured) {
  record_.baseline->slowdown.low = -0.01;
  EXPECT_EQ(row().support, Support::measured);
  record_.baseline->slowdown.low = 0.01;
  record_.verdict = Verdict::unresolved;
  EXPECT_EQ(row().support, Support::measured);
  EXPECT_NE(row().next_evidence.find("--seconds"), std::string::npos);
  record_.verdict = Verdict::win;
  record_.trust = Trust::b;
  record_.audit.rows = {{"mig", Trust::a, ""}, {"power_cap", Trust::b, "600 W"}};
  EXPECT_EQ(row().support, Support::measured);
  EXPECT_NE(row().next_evidence.find("power_cap (600 W)"), std::string::npos);
}

TEST_F(SweepReportTest, ADefaultThatNothingBeatRejectsTheOthers) {
  record_.winner.traits.is_default = true;
  EXPECT_EQ(row().support, Support::default_kept);
}

TEST_F(SweepReportTest, TrustCAndPredictionsAreCaveated) {
  record_.trust = Trust::c;
  EXPECT_EQ(row().support, Support::caveated);
  record_.trust = Trust::a;
  record_.grade = RecordGrade::predicted;
  record_.winner.measurement = {};
  record_.winner.predicted_us = 100;
  record_.runners_up[0].predicted_us = 110;
  EXPECT_EQ(row().support, Support::caveated);
  EXPECT_NEAR(row().margin, 0.1, 1e-9);
  EXPECT_EQ(row().us, 100);
  record_.winner.traits.is_default = true;
  record_.runners_up[0].predicted_us = 98;
  EXPECT_EQ(row().margin, 0) << "the default was kept";
}

TEST_F(SweepReportTest, ASearchThatHasHardlyLookedAsksForALongerOne) {
  record_.search.stop_reason = "budget";
  record_.candidates = 2341;
  record_.measured = 1;
  record_.search.failed = 2;
  record_.verdict = Verdict::unresolved;
  EXPECT_EQ(row().support, Support::measured);
  EXPECT_EQ(row().next_evidence, "a longer search: 3 of 2341 candidates were tried");
}

TEST_F(SweepReportTest, ARunnerUpIsNeverFasterThanItsWinner) {
  record_.runners_up[0].slowdown = {std::log(0.997), -0.01, 0.01};
  EXPECT_EQ(row().margin, 0);
}

TEST_F(SweepReportTest, APredictionBelowTheCostOfANodeIsBoundByTheLaunch) {
  record_.grade = RecordGrade::predicted;
  record_.winner.measurement = {};
  record_.winner.predicted_us = 2;
  EXPECT_EQ(row().bound, Bound::compute);
  record_.roofline_us = 0.9 * profile_.graph_node_us;
  EXPECT_EQ(row().bound, Bound::launch);
  profile_.graph_node_us = 0;  // not known
  record_.roofline_us = 0.1;
  EXPECT_EQ(row().bound, Bound::launch);
}

TEST_F(SweepReportTest, AnUnfinishedSearchAsksForMore) {
  record_.search.stop_reason = "budget";
  record_.search.regret_estimate = 0.05;
  EXPECT_NE(row().next_evidence.find("5.0 %"), std::string::npos);
}

}  // namespace
}  // namespace kernwright
