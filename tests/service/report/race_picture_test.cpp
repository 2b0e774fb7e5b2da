#include "service/report/race_picture.h"

#include <cmath>
#include <cstdint>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <regex>
#include <string>
#include <utility>
#include <vector>

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

/// Returns how often a text has a part.
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
  const std::regex mark("cx=\"([0-9.]+)%?\"");
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

std::vector<std::string> differences(const TuningRecord& record) {
  std::vector<std::string> texts;
  for (const Finalist& finalist : finalists_of(record)) texts.push_back(finalist.differs);
  return texts;
}

TEST(RacePictureTest, ADifferenceIsTheTemplateOrTheValuesThatDiffer) {
  EXPECT_THAT(differences(known_win()), ElementsAre("skinny", "BM=8", "tiled"));
}

TEST(RacePictureTest, CandidatesOfAnotherTemplateAreToldApart) {
  TuningRecord record = known_win();
  const auto add = [&](Configuration configuration) {
    record.runners_up.push_back(record.runners_up[0]);
    record.runners_up.back().choice = {"matmul/stream", std::move(configuration)};
  };
  // The parameter with the most values comes first, and one that is the same in all is left out.
  add(Configuration({{"A", 1}, {"B", 64}, {"SAME", 7}, {"Z", 1}}));
  add(Configuration({{"A", 2}, {"B", 64}, {"SAME", 7}, {"Z", 2}}));
  add(Configuration({{"A", 1}, {"B", 64}, {"SAME", 7}, {"Z", 3}}));
  EXPECT_THAT(differences(record), ElementsAre("skinny", "BM=8", "stream Z=1 A=1", "stream Z=2 A=2",
                                               "stream Z=3 A=1", "tiled"));
}

TEST(RacePictureTest, NoLongDifferenceIsCut) {
  TuningRecord record = known_win();
  std::vector<std::pair<std::string, std::int64_t>> values;
  for (int i = 0; i < 20; ++i) values.emplace_back(concat("PARAMETER_", i), 100 + i);
  record.runners_up[0].choice.configuration = Configuration(values);
  values.back().second = 7;
  record.runners_up.push_back(record.runners_up[0]);
  record.runners_up[1].choice.configuration = Configuration(values);
  const std::string svg = race_picture(record, PicturePlace::file);
  EXPECT_THAT(svg, HasSubstr("PARAMETER_19=119"));
  EXPECT_THAT(svg, HasSubstr("PARAMETER_19=7"));
  EXPECT_THAT(svg, Not(HasSubstr("…")));
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
  EXPECT_EQ(count(svg, "ä"), 36U);
  EXPECT_EQ(count(svg, "\xA4<"), 3U) << "three lines, and no letter is cut in two";
}

}  // namespace
}  // namespace kernwright
