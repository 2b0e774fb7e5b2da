#include "model/candidate/parameter_space.h"

#include <gtest/gtest.h>
#include <set>

namespace kernwright {
namespace {

ParameterSpace small_space() {
  return ParameterSpace({{"A", {1, 2}, Binding::compile}, {"B", {10, 20, 30}, Binding::runtime}});
}

TEST(ParameterSpaceTest, LastParameterRunsFastest) {
  const ParameterSpace space = small_space();
  ASSERT_EQ(space.size(), 6);
  EXPECT_EQ(space.at(0).text(), "A=1 B=10");
  EXPECT_EQ(space.at(1).text(), "A=1 B=20");
  EXPECT_EQ(space.at(5).text(), "A=2 B=30");
}

TEST(ParameterSpaceTest, EveryPointIsDifferent) {
  const ParameterSpace space = small_space();
  std::set<std::string> points;
  for (std::int64_t i = 0; i < space.size(); ++i) points.insert(space.at(i).text());
  EXPECT_EQ(points.size(), 6U);
}

TEST(ParameterSpaceTest, NoParametersMakeOnePoint) {
  const ParameterSpace space;
  ASSERT_EQ(space.size(), 1);
  EXPECT_EQ(space.at(0).text(), "");
}

TEST(ConfigurationTest, FindsValuesByName) {
  const Configuration configuration = small_space().at(4);
  EXPECT_EQ(configuration.at("B"), 20);
  EXPECT_TRUE(configuration.contains("A"));
  EXPECT_FALSE(configuration.contains("C"));
}

}  // namespace
}  // namespace kernwright
