#include "service/report/record_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

#include "support/text.h"
#include "tests/service/report/known_record.h"

namespace kernwright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string words(const TuningRecord& record, ReportRow row = {}) {
  std::string all;
  for (const std::string& sentence : record_words(record, row)) {
    all += concat(all.empty() ? "" : " ", sentence);
  }
  return all;
}

TEST(RecordWordsTest, NumbersHaveThreeOrFourDigitsAndAUnitThatDoesNotPart) {
  EXPECT_EQ(us_text(0.5), "500\u00a0ns");
  EXPECT_EQ(us_text(7.046), "7.05\u00a0µs");
  EXPECT_EQ(us_text(260.35), "260.4\u00a0µs");
  EXPECT_EQ(us_text(1238.4), "1.238\u00a0ms");
  EXPECT_EQ(us_text(0), "–");
  EXPECT_EQ(us_text(std::numeric_limits<double>::infinity()), "–\u00a0ms");
  EXPECT_EQ(percent_text(0), "0\u00a0%");
  EXPECT_EQ(percent_text(-0.0101), "−1.0\u00a0%");
  EXPECT_EQ(percent_text(0.3), "35\u00a0%");
  EXPECT_EQ(share_text(0.8003), "80.0\u00a0%");
  EXPECT_EQ(share_text(0.012), "1.2\u00a0%");
  EXPECT_EQ(times_text(1.136), "1.14×");
  EXPECT_EQ(bytes_text(99), "99\u00a0B");
  EXPECT_EQ(bytes_text(199'680), "200\u00a0kB");
}

TEST(RecordWordsTest, AWinSaysByHowMuchAndWhatIsNext) {
  const TuningRecord record = known_win();
  ReportRow row = report_row(record, nullptr, {});
  row.bound = Bound::memory;
  row.next = {"tune with more --seconds", "3 of 40 candidates were tried"};
  EXPECT_THAT(
      record_words(record, row),
      ElementsAre(
          "A win: every other finalist is slower. The runner-up is 2.0\u00a0% slower (1.0 to "
          "3.0\u00a0%).",
          HasSubstr("The default takes 1.50× its time (at least 1.50×)."),
          "It reaches 69.9\u00a0% of its roof, 7.00\u00a0µs, which the memory sets.",
          "Next: tune with more --seconds: 3 of 40 candidates were tried."));
}

TEST(RecordWordsTest, AWinWithoutOthersNamesNone) {
  TuningRecord record = known_win();
  record.runners_up.clear();
  EXPECT_THAT(words(record), HasSubstr("A win: nobody else reached the finals."));
}

TEST(RecordWordsTest, ATieNamesTheRule) {
  TuningRecord record = known_win();
  record.verdict = Verdict::tie;
  record.runners_up[0].tied = true;
  record.winner.traits.resources.registers = 40;
  record.runners_up[0].traits.resources.registers = 60;
  EXPECT_THAT(words(record), HasSubstr("a rule decides: it needs fewer registers."));
}

TEST(RecordWordsTest, WhatIsUnresolvedSaysWhy) {
  TuningRecord record = known_win();
  record.verdict = Verdict::unresolved;
  EXPECT_THAT(words(record), HasSubstr("the time was over before it was known who is fastest."));
  for (int i = 0; i < 32; ++i) record.rounds.dropped.push_back(i);
  EXPECT_THAT(words(record), HasSubstr("more than a quarter of the rounds were disturbed."));
  record.measured = 1;
  record.search.failed = 0;
  record.search.stop_reason = "budget";
  record.candidates = 2000;
  EXPECT_THAT(words(record),
              HasSubstr("the search has hardly looked. 1 of 2000 candidates was tried."));
}

TEST(RecordWordsTest, APredictionClaimsNothing) {
  TuningRecord record = known_win();
  record.grade = RecordGrade::predicted;
  ReportRow twelve;
  twelve.us = 12;
  const std::string said = words(record, twelve);
  EXPECT_THAT(said, HasSubstr("A prediction: 12.00\u00a0µs by the cost model"));
  EXPECT_THAT(said, Not(HasSubstr("default")));
}

TEST(RecordWordsTest, ADefaultThatIsAsFastIsNotBeaten) {
  const TuningRecord record = known_win();
  ReportRow row;
  row.speedups = {{Speedup::Over::default_configuration, 1.002, 0.999, 1.005}};
  EXPECT_THAT(words(record, row), HasSubstr("It is not clearly faster than the default (1.00×)."));
  row.bound = Bound::launch;
  EXPECT_THAT(words(record, row), HasSubstr("What it costs is the launch"));
}

TEST(RecordWordsTest, TheBestLaunchPathIsTheOneThatItsTimesShow) {
  using enum KernelPath;
  LaunchTimes paths{.times = {{stream, 5, 12}, {graph, 2, 10}, {rebind, 3, 11}}, .best = graph};
  EXPECT_EQ(launch_words(paths), "graph: the shortest back to back");
  paths = {.times = {{stream, 5, 12.12}, {graph, 16.4, 15.84}, {rebind, 2.4, 12.69}},
           .best = rebind};
  EXPECT_EQ(launch_words(paths),
            "rebind: back to back within 5 % of stream, and cheaper for the host");
  paths.best = graph;
  EXPECT_EQ(
      launch_words(paths),
      "rebind: back to back within 5 % of stream, and cheaper for the host; programs get graph, "
      "which the record names, as its rounds did not tell them apart");
  EXPECT_EQ(launch_words({}), "");
}

}  // namespace
}  // namespace kernwright
