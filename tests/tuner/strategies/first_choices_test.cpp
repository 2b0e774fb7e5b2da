#include "tuner/strategies/first_choices.h"

#include <algorithm>
#include <gtest/gtest.h>

#include "tests/tuner/strategies/small_space.h"

namespace kernwright::detail {
namespace {

using Indices = std::vector<std::size_t>;

class FirstChoicesTest : public ::testing::Test {
 protected:
  FirstChoicesTest() { grid_.space.predicted_us = {30, 10, 20, 50, 40, 79}; }

  SmallSpace grid_{{6}};
};

TEST_F(FirstChoicesTest, GoInTheOrderOfThePredictions) {
  EXPECT_EQ(first_choices(grid_.space, 3), (Indices{1, 2, 0}));
  EXPECT_EQ(first_choices(grid_.space, 100), by_prediction(grid_.space));
}

TEST_F(FirstChoicesTest, TryAnotherTemplateBeforeMuchOfTheSame) {
  // The best of template 1 is 10 % slower than the candidates of template 0, which differ by nearly
  // nothing.
  grid_.space.template_of = {0, 0, 0, 0, 0, 1};
  grid_.space.predicted_us = {100, 100.1, 100.2, 100.3, 100.4, 110};
  const Indices choices = first_choices(grid_.space, 6);
  EXPECT_EQ((Indices{choices.begin(), choices.begin() + 2}), (Indices{0, 1}));
  const auto other = std::find(choices.begin(), choices.end(), 5U);
  EXPECT_LT(other - choices.begin(), 4) << "before the last of the same";
  grid_.space.predicted_us[5] = 300;
  EXPECT_EQ(first_choices(grid_.space, 6).back(), 5U) << "but not whatever it is predicted to take";
}

TEST_F(FirstChoicesTest, EndWithTemplatesThatWouldHaveNone) {
  grid_.space.template_of = {0, 0, 0, 0, 0, 1};
  grid_.space.predicted_us = {100, 101, 102, 103, 104, 149};
  EXPECT_EQ(first_choices(grid_.space, 3).back(), 5U);
  EXPECT_EQ(first_choices(grid_.space, 1), (Indices{0})) << "the fastest comes first";
  grid_.space.predicted_us[5] = 151;
  EXPECT_EQ(first_choices(grid_.space, 3).back(), 2U);
}

TEST_F(FirstChoicesTest, SpreadOverWhatIsNotAlike) {
  SmallSpace grid({3, 3});
  // Candidates 1 and 2 differ from candidate 0 in one parameter, 4 differs in both.
  grid.space.predicted_us = {100, 100.5, 101, 120, 102, 121, 122, 123, 124};
  EXPECT_EQ(first_choices(grid.space, 2), (Indices{0, 4}));
}

TEST_F(FirstChoicesTest, TakeOneOfThoseThatShareACompile) {
  grid_.space.group_of = {0, 0, 0, 1, 1, 1};
  EXPECT_EQ(first_choices(grid_.space, 5), (Indices{1, 4}));
}

TEST_F(FirstChoicesTest, LeaveOutWhatIsPredictedToBeHopeless) {
  grid_.space.template_of = {0, 0, 0, 0, 0, 1};
  grid_.space.predicted_us[5] = 81;
  EXPECT_EQ(first_choices(grid_.space, 100), (Indices{1, 2, 0, 4, 3}));
}

TEST_F(FirstChoicesTest, AreNoneWhereTheModelTellsNobodyApart) {
  grid_.space.predicted_us.assign(6, 10);
  EXPECT_TRUE(first_choices(grid_.space, 3).empty());
  grid_.space.predicted_us = {30, 10, 20, 0, 40, 79};
  EXPECT_TRUE(first_choices(grid_.space, 3).empty()) << "one was not predicted";
}

}  // namespace
}  // namespace kernwright::detail
