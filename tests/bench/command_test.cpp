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

TEST(CommandTest, OptionsAreReadByTheirName) {
  const char* words[] = {"build/bin/finals", "aa", "--gap", "1.5", "--runs", "20", "--json"};
  constexpr int kWords = 7;
  EXPECT_EQ(command_line(kWords, words), "finals aa --gap 1.5 --runs 20 --json");
  EXPECT_EQ(option_value(kWords, words, "--gap"), "1.5");
  EXPECT_EQ(option_value(kWords, words, "--json"), std::nullopt) << "its value is missing";
  EXPECT_EQ(text_option(kWords, words, "--runs"), "20");
  EXPECT_EQ(number_option(kWords, words, "--gap", 2), 1.5);
  EXPECT_EQ(number_option(kWords, words, "--seconds", 10), 10);
  EXPECT_EQ(integer_option(kWords, words, "--runs", 5), 20);
  EXPECT_EQ(integer_option(kWords, words, "--seed", 1), 1);
}

TEST(CommandDeathTest, WhatIsNoPositiveNumberOrMissingEndsTheBench) {
  const char* words[] = {"finals", "--gap", "-1", "--runs", "1.5"};
  constexpr int kWords = 5;
  const auto ends = ::testing::ExitedWithCode(1);
  EXPECT_EXIT(number_option(kWords, words, "--gap", 2), ends, "--gap -1 is no positive number");
  EXPECT_EXIT(integer_option(kWords, words, "--runs", 2), ends, "--runs 1.5 is no positive number");
  EXPECT_EXIT(text_option(kWords, words, "--out"), ends, "--out is missing");
}

TEST(CommandDeathTest, WhatIsNoOptionOfTheUsageEndsTheBench) {
  const auto check = [](std::vector<const char*> words) {
    words.insert(words.begin(), "mutants");
    expect_options(static_cast<int>(words.size()), words.data(),
                   "usage: mutants [--json FILE] [--seconds N]\n               [--compile-only]\n");
  };
  check({"--json", "--out.json", "--compile-only", "--seconds", "3"});
  check({"aa", "--compile-only"});
  const auto ends = ::testing::ExitedWithCode(2);
  EXPECT_EXIT(check({"--second", "3"}), ends, "no option --second\nusage: mutants");
  EXPECT_EXIT(check({"--compile-only", "--trials"}), ends, "no option --trials");
  EXPECT_EXIT(check({"--seconds"}), ends, "a value is missing after --seconds");
  EXPECT_EXIT(check({"--help"}), ::testing::ExitedWithCode(0), "");
}

TEST(CommandTest, WhatIsNotThereIsNoFailureOfTheBench) {
  EXPECT_EQ(report({ErrorCode::unavailable, "no GPU"}), kCannotRun);
  EXPECT_EQ(report({ErrorCode::device, "lost"}), 1);
}

}  // namespace
}  // namespace kernwright
