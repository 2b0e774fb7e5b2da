#include "service/report/race_picture.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <regex>

#include "tests/service/report/known_record.h"

namespace kernwright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> roles(const TuningRecord& record) {
  std::vector<std::string> names;
  for (const Finalist& finalist : finalists_of(record)) names.push_back(finalist.role);
  return names;
}

/// How often a text has a part.
std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

/// The x of the marks of intervals, in their order.
std::vector<double> marks(const std::string& svg) {
  std::vector<double> places;
  const std::regex mark("cx=\"([0-9.]+)\"");
  for (std::sregex_iterator i(svg.begin(), svg.end(), mark), end; i != end; ++i) {
    places.push_back(std::stod((*i)[1]));
  }
  return places;
}

TEST(RacePictureTest, TheDefaultIsNamedOnceWhereverItStands) {
  TuningRecord record = known_win();
  EXPECT_THAT(roles(record), ElementsAre("winner", "2nd", "default"));
  record.runners_up.push_back(*record.baseline);
  EXPECT_THAT(roles(record), ElementsAre("winner", "2nd", "3rd, default"));
  record.winner.traits.is_default = true;
  record.runners_up.pop_back();
  record.baseline->choice = record.winner.choice;
  EXPECT_THAT(roles(record), ElementsAre("winner, default", "2nd"));
  record.runners_up.resize(12, record.runners_up[0]);
  EXPECT_EQ(roles(record)[10], "11th");
  EXPECT_EQ(roles(record)[12], "13th");
}

TEST(RacePictureTest, ADifferenceIsTheTemplateOrTheValuesThatDiffer) {
  const TuningRecord record = known_win();
  EXPECT_EQ(difference(record.runners_up[0], record.winner), "BM=8");
  EXPECT_EQ(difference(*record.baseline, record.winner), "tiled");
  EXPECT_EQ(difference(record.winner, record.winner), "the same values");
}

TEST(RacePictureTest, EachFinalistStandsWhereItsSlowdownIs) {
  TuningRecord record = known_win();
  record.runners_up.push_back(record.runners_up[0]);
  record.runners_up[1].slowdown = {0.04, 0.03, 0.05};
  const std::string svg = race_picture(record, PicturePlace::page);
  const std::vector<double> at = marks(svg);
  ASSERT_EQ(at.size(), 3U) << "the default is too far for a mark";
  EXPECT_LT(at[0], at[1]);
  EXPECT_NEAR((at[2] - at[0]) / (at[1] - at[0]), std::expm1(0.04) / std::expm1(0.02), 0.01);
  EXPECT_THAT(svg, HasSubstr("50\u00a0% slower"));
  EXPECT_THAT(svg, HasSubstr("tie band"));
  EXPECT_THAT(svg, HasSubstr(">0\u00a0%<"));
}

TEST(RacePictureTest, AloneItHasTheReadersColours) {
  const TuningRecord record = known_win();
  EXPECT_THAT(race_picture(record, PicturePlace::page), Not(HasSubstr("<style>")));
  EXPECT_THAT(race_picture(record, PicturePlace::file), HasSubstr("prefers-color-scheme:dark"));
}

TEST(RacePictureTest, APredictionHasNoIntervalsAndNoBand) {
  TuningRecord record = known_win();
  record.grade = RecordGrade::predicted;
  record.winner.predicted_us = 10;
  record.runners_up[0].predicted_us = 10.2;
  record.baseline.reset();
  const std::string svg = race_picture(record, PicturePlace::page);
  EXPECT_THAT(svg, Not(HasSubstr("tie band")));
  EXPECT_THAT(svg, HasSubstr("slower than the winner, predicted"));
  EXPECT_EQ(marks(svg).size(), 2U);
  EXPECT_THAT(svg, Not(HasSubstr("-0\u00a0%")));
}

TEST(RacePictureTest, NumbersThatARecordShouldNotHaveDrawNothingOdd) {
  TuningRecord record = known_win();
  record.runners_up.resize(3, record.runners_up[0]);
  record.runners_up[0].slowdown = {1e300, 0, 1e300};
  record.runners_up[1].slowdown = {-1e300, -1e300, 0};
  record.runners_up[2].slowdown = {0, -40, 1e-300};
  for (const RecordGrade grade : {RecordGrade::measured, RecordGrade::predicted}) {
    record.grade = grade;
    record.winner.predicted_us = 0;
    const std::string svg = race_picture(record, PicturePlace::page);
    EXPECT_THAT(svg, Not(HasSubstr("\"nan\"")));
    EXPECT_THAT(svg, Not(HasSubstr("\"inf\"")));
    EXPECT_LT(svg.size(), 20'000U);
  }
}

TEST(RacePictureTest, OneFinalistIsNoRace) {
  TuningRecord record = known_win();
  record.runners_up.clear();
  record.baseline.reset();
  EXPECT_EQ(race_picture(record, PicturePlace::page), "");
}

TEST(RacePictureTest, NamesOfStrangersAreText) {
  TuningRecord record = known_win();
  record.key.problem = "matmul </title><script>alert(1)</script>";
  record.winner.choice.kernel_template = "matmul/<script>&\"ü";
  record.runners_up[0].choice.kernel_template = "m/ääääääääääääääääääääääääääääääääääää";
  const std::string svg = race_picture(record, PicturePlace::page);
  EXPECT_THAT(svg, Not(HasSubstr("<script")));
  EXPECT_THAT(svg, HasSubstr("&lt;script&gt;&amp;&quot;ü"));
  EXPECT_THAT(svg, HasSubstr("ä…")) << "no letter is cut in two";
  EXPECT_EQ(count(svg, "<svg "), 1U);
}

}  // namespace
}  // namespace kernwright
