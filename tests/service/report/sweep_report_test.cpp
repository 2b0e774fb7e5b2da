#include "service/report/sweep_report.h"

#include <cmath>
#include <gtest/gtest.h>
#include <memory>

#include "model/catalog/catalog.h"
#include "support/text.h"
#include "tuner/audit/audit.h"
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
  ReportRow row() const {
    const BoundProblem bound = problem();
    return report_row(record_, &bound, profile_);
  }

  std::shared_ptr<const Catalog> catalog_ = Catalog::load({}).value();
  DeviceProfile profile_ = find_profile("h200").value();
  TuningRecord record_;
};

TEST_F(SweepReportTest, AClearWinnerOnATrustedDeviceIsSupported) {
  EXPECT_EQ(row().support, Support::supported);
  EXPECT_NEAR(row().roofline_share, 0.5, 1e-9);
  EXPECT_NEAR(row().margin, 0.03, 1e-9);
  EXPECT_EQ(row().bound, Bound::compute);
  EXPECT_EQ(row().next.text(), "");
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
  EXPECT_EQ(row().next.text(), "tune with more --seconds: the finals ended too early");
  record_.verdict = Verdict::win;
  record_.trust = Trust::b;
  record_.audit.rows = {{"mig", Trust::a, ""}, {"power_cap", Trust::b, "600 W"}};
  EXPECT_EQ(row().support, Support::measured);
  EXPECT_EQ(row().next.action, concat(remedy("power_cap"), ", and tune again"));
  EXPECT_EQ(row().next.reason, "power_cap (600 W)");
  record_.audit.rows.insert(record_.audit.rows.begin(), {"confidential_compute", Trust::b, "on"});
  EXPECT_EQ(row().next.action, concat(remedy("power_cap"), ", and tune again"))
      << "only what a person can change is a step";
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
  EXPECT_EQ(row().next.text(), "tune with more --seconds: 3 of 2341 candidates were tried");
}

TEST_F(SweepReportTest, ARunnerUpIsNeverFasterThanItsWinner) {
  record_.runners_up[0].slowdown = {std::log(0.997), -0.01, 0.01};
  EXPECT_EQ(row().margin, 0);
}

// A winner by rule may not be the fastest finalist. Its runner-up then is, and is not slower than
// itself, which says nothing of the two.
TEST_F(SweepReportTest, TheMarginIsThatOfTheRoundsThatBothWereIn) {
  record_.runners_up[0].slowdown = {};
  record_.winner.slowdown = {0.003, -0.01, 0.02};
  EXPECT_EQ(row().paired_margin, std::nullopt) << "no round had both";
  std::vector<double> samples;
  for (int i = 0; i < 64; ++i) samples.push_back(100 + i % 5);
  record_.winner.measurement.samples_us = samples;
  for (int i = 0; i < 64; ++i) samples[static_cast<std::size_t>(i)] *= 0.997 + 0.0001 * (i % 3);
  record_.runners_up[0].measurement.samples_us = samples;
  const std::optional<Slowdown> margin = row().paired_margin;
  ASSERT_TRUE(margin);
  EXPECT_NEAR(margin->estimate, std::log(0.9971), 1e-9);
  EXPECT_LT(margin->low, margin->high);
  EXPECT_EQ(row().margin, 0) << "a runner-up is never faster";
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
  EXPECT_EQ(row().next.text(), "tune with more --seconds: what was not tried may be 5.0 % faster");
}

/// A record whose finals had the default, the first choice and the winner of before.
class SpeedupTest : public SweepReportTest {
 protected:
  static constexpr int kRounds = 40;

  /// `times` as long as the winner's samples, which wobble by up to `noise`, both as factors.
  static Measurement samples(double times, double noise) {
    Measurement made;
    for (int i = 0; i < kRounds; ++i)
      made.samples_us.push_back(100 * times * (1 + noise * (i % 3)));
    return made;
  }

  SpeedupTest() {
    const auto ranked = [](std::int64_t tile, Measurement measurement) {
      RankedConfiguration made;
      made.choice = {"matmul/tiled", Configuration({{"BM", tile}})};
      made.measurement = std::move(measurement);
      return made;
    };
    record_.winner = ranked(1, samples(1, 0));
    record_.baseline = ranked(2, samples(1.2, 0.01));
    record_.runners_up = {ranked(3, samples(0.995, 0.01)), ranked(4, samples(1.1, 0))};
    record_.runners_up[0].traits.is_predicted = true;
    record_.runners_up[1].traits.is_incumbent = true;
    record_.rounds.sm_probe_us.assign(kRounds, 1);
  }
};

TEST_F(SpeedupTest, TheWinnerIsComparedWithEveryAnswerThatThereWas) {
  const std::vector<Speedup> found = row().speedups;
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].over, Speedup::Over::default_configuration);
  EXPECT_NEAR(found[0].times, 1.212, 1e-6);
  EXPECT_NEAR(found[0].low, 1.2, 1e-6);
  EXPECT_NEAR(found[0].high, 1.224, 1e-6);
  EXPECT_FALSE(found[0].level());
  EXPECT_EQ(found[1].over, Speedup::Over::first_choice);
  EXPECT_TRUE(found[1].level()) << "its interval reaches below 1";
  EXPECT_EQ(found[2].over, Speedup::Over::previous_winner);
  EXPECT_NEAR(found[2].times, 1.1, 1e-6);
}

TEST_F(SpeedupTest, AWinnerThatAPersonPinnedMayBeSlowerAndIsNotLevelThen) {
  std::swap(record_.winner, *record_.baseline);
  EXPECT_NEAR(row().speedups[0].times, 1 / 1.212, 1e-6);
  EXPECT_FALSE(row().speedups[0].level());
  record_.winner.measurement = samples(1.005, 0);
  EXPECT_TRUE(row().speedups[0].level()) << "within what is equal for every purpose";
}

TEST_F(SpeedupTest, RoundsThatDoNotCountAreLeftOut) {
  for (int i = 0; i < kRounds; i += 2) {
    record_.baseline->measurement.samples_us[static_cast<std::size_t>(i)] *= 5;
    record_.rounds.dropped.push_back(i);
  }
  EXPECT_NEAR(row().speedups[0].times, 1.212, 1e-6);
}

TEST_F(SpeedupTest, BlocksDecideWhereBothHaveThem) {
  record_.rounds.block_rounds = 10;
  for (RankedConfiguration* each : {&record_.winner, &*record_.baseline}) {
    each->in_blocks = true;
    each->measurement.samples_us.insert(each->measurement.samples_us.end(), 10,
                                        each == &record_.winner ? 100 : 150);
  }
  EXPECT_NEAR(row().speedups[0].times, 1.5, 1e-6);
  EXPECT_NEAR(row().speedups[2].times, 1.1, 1e-6) << "the previous winner has rounds alone";
}

TEST_F(SpeedupTest, WhatWonIsNotComparedWithItself) {
  record_.winner.traits.is_default = true;
  record_.baseline->choice = record_.winner.choice;
  EXPECT_EQ(row().speedups.size(), 2U);
  record_.grade = RecordGrade::predicted;
  EXPECT_TRUE(row().speedups.empty()) << "nothing was measured";
}

}  // namespace
}  // namespace kernwright
