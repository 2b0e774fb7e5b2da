#include "bench/common/command.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace kernwright {
namespace {

TEST(CommandTest, AResultsFileAloneIsNoArgument) {
  const auto printed = [](std::vector<const char*> words) {
    words.insert(words.begin(), "finals");
    ::testing::internal::CaptureStderr();
    const bool lacks =
        lacks_arguments(static_cast<int>(words.size()), words.data(), "usage: finals aa\n");
    const std::string text = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(lacks, !text.empty());
    return text;
  };
  EXPECT_EQ(printed({}), "usage: finals aa\n");
  EXPECT_EQ(printed({"--json", "out.json"}), "usage: finals aa\n");
  EXPECT_EQ(printed({"aa"}), "");
  EXPECT_EQ(printed({"aa", "--json", "out.json"}), "");
  EXPECT_EQ(printed({"--finals", "3"}), "");
}

}  // namespace
}  // namespace kernwright
