#include "model/candidate/choice.h"

#include <gtest/gtest.h>

namespace kernwright {
namespace {

TEST(ChoiceTest, TheIdNamesTheTemplateAndItsValues) {
  const Choice choice{"matmul/tiled", Configuration({{"BM", 128}, {"BN", 64}})};
  EXPECT_EQ(choice.id(), "matmul/tiled BM=128 BN=64");
}

TEST(ChoiceTest, TheIdOfATemplateWithoutParametersIsItsName) {
  EXPECT_EQ((Choice{"matmul/plain", Configuration()}.id()), "matmul/plain");
}

}  // namespace
}  // namespace kernwright
