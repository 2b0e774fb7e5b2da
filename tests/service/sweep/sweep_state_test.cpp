#include "service/sweep/sweep_state.h"

#include <gtest/gtest.h>
#include <vector>

namespace kernwright {
namespace {

GradedRecord record(RecordGrade grade, Trust trust, Match match,
                    MissReason reason = MissReason::none) {
  GradedRecord graded{.head = {}, .match = match, .reason = reason};
  graded.head.grade = grade;
  graded.head.trust = trust;
  return graded;
}

GradedRecord measured(Trust trust, Match match = Match::exact) {
  return record(RecordGrade::measured, trust, match);
}

TEST(SweepStateTest, WithoutARecordAProblemIsDue) {
  const SweepState state = sweep_state({}, RecordGrade::measured);
  EXPECT_EQ(state.settled, nullptr);
  EXPECT_FALSE(state.provisional);
}

TEST(SweepStateTest, ATrustedRecordSettlesAProblem) {
  for (const Trust trust : {Trust::a, Trust::b}) {
    for (const Match match : {Match::exact, Match::recheck}) {
      const std::vector<GradedRecord> known = {measured(trust, match)};
      EXPECT_EQ(sweep_state(known, RecordGrade::measured).settled, &known[0]);
    }
  }
}

TEST(SweepStateTest, AProvisionalRecordIsDueAgainAndSaysSo) {
  const std::vector<GradedRecord> known = {measured(Trust::c), measured(Trust::c, Match::recheck)};
  const SweepState state = sweep_state(known, RecordGrade::measured);
  EXPECT_EQ(state.settled, nullptr);
  EXPECT_TRUE(state.provisional);
}

TEST(SweepStateTest, ATrustedRecordBehindAProvisionalOneSettlesToo) {
  const std::vector<GradedRecord> known = {measured(Trust::c), measured(Trust::b, Match::recheck)};
  const SweepState state = sweep_state(known, RecordGrade::measured);
  EXPECT_EQ(state.settled, &known[1]);
  EXPECT_FALSE(state.provisional);
}

TEST(SweepStateTest, RecordsOfOtherCodeAreDueAgain) {
  const std::vector<GradedRecord> known = {
      record(RecordGrade::measured, Trust::a, Match::stale_code, MissReason::other_compiler),
      record(RecordGrade::predicted, Trust::a, Match::predicted, MissReason::template_changed)};
  for (const RecordGrade wanted : {RecordGrade::measured, RecordGrade::predicted}) {
    EXPECT_EQ(sweep_state(known, wanted).settled, nullptr);
    EXPECT_FALSE(sweep_state(known, wanted).provisional);
  }
}

TEST(SweepStateTest, APredictionSettlesOnlyWhereNothingCanBeMeasured) {
  const std::vector<GradedRecord> known = {
      record(RecordGrade::predicted, Trust::a, Match::predicted)};
  EXPECT_EQ(sweep_state(known, RecordGrade::predicted).settled, &known[0]);
  EXPECT_EQ(sweep_state(known, RecordGrade::measured).settled, nullptr);
  EXPECT_FALSE(sweep_state(known, RecordGrade::measured).provisional);
}

TEST(SweepStateTest, WhereNothingCanBeMeasuredAProvisionalRecordSettles) {
  const std::vector<GradedRecord> known = {measured(Trust::c)};
  EXPECT_EQ(sweep_state(known, RecordGrade::predicted).settled, &known[0]);
}

}  // namespace
}  // namespace kernwright
