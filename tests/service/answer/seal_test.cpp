#include "service/answer/seal.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace kernwright {
namespace {

class SealTest : public ::testing::Test {
 protected:
  std::vector<std::string> said_;
  Seal seal_{[this](LogLevel, std::string_view line) { said_.emplace_back(line); }};
};

TEST_F(SealTest, UntilItIsClosedItAdmitsAllAndCountsNothing) {
  EXPECT_FALSE(seal_.closed());
  EXPECT_TRUE(seal_.admit("vector_add n=1", "absent"));
  EXPECT_EQ(seal_.counted(), 0U);
}

TEST_F(SealTest, TheErrorNamesProblemReasonAndRemedy) {
  seal_.close(SealMode::error);
  EXPECT_TRUE(seal_.refuses());
  const Result<void> refused = seal_.admit("vector_add n=1", "absent");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::refused);
  EXPECT_EQ(
      refused.error().message,
      "vector_add n=1 needs a compile (absent), and the service is sealed; tune it or prewarm "
      "it before the seal, or install a bundle that has it");
  EXPECT_EQ(seal_.counted(), 1U);
  EXPECT_TRUE(said_.empty());
}

TEST_F(SealTest, AWarningGoesToTheLogAndTheModeMayChange) {
  seal_.close(SealMode::warning);
  EXPECT_TRUE(seal_.closed());
  EXPECT_FALSE(seal_.refuses());
  EXPECT_TRUE(seal_.admit("vector_add n=1", "absent"));
  ASSERT_EQ(said_.size(), 1U);
  EXPECT_TRUE(said_[0].starts_with("vector_add n=1 needs a compile"));
  seal_.close(SealMode::error);
  EXPECT_FALSE(seal_.admit("vector_add n=2", "absent"));
  EXPECT_EQ(seal_.counted(), 2U);
}

TEST(SealWithoutALogTest, AWarningIsCountedAlone) {
  Seal seal{{}};
  seal.close(SealMode::warning);
  EXPECT_TRUE(seal.admit("vector_add n=1", "absent"));
  EXPECT_EQ(seal.counted(), 1U);
}

}  // namespace
}  // namespace kernwright
