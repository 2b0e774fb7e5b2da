#include "tuner/strategies/first_choices.h"

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

TEST_F(FirstChoicesTest, BeginWithTheBestOfEachTemplate) {
  grid_.space.template_of = {0, 0, 0, 1, 1, 2};
  EXPECT_EQ(first_choices(grid_.space, 5), (Indices{1, 4, 5, 2, 0}));
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
