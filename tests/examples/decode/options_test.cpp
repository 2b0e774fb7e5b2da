#include "examples/decode/options.h"

#include <cstdio>
#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace decode {
namespace {

std::string refused_options(std::vector<std::string> words) {
  words.insert(words.begin(), {"--config", "c.json"});
  const kw::Result<Options> options = parse_options(words);
  return options ? "accepted" : options.error().message;
}

TEST(DecodeOptionsTest, WhatIsSaidIsRead) {
  const kw::Result<Options> options =
      parse_options({"--config", "c.json", "--weights", "a", "b", "--lengths", "3,0,12", "--steps",
                     "5", "--cache-layout", "paged", "--seconds", "2", "--check", "--seed", "9"});
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(options->weights, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(options->lengths, (Ints{3, 0, 12}));
  EXPECT_EQ(options->steps, 5);
  EXPECT_TRUE(options->paged);
  EXPECT_TRUE(options->check);
  EXPECT_EQ(options->seconds, 2);
  EXPECT_EQ(options->seed, 9U);
  EXPECT_EQ(parse_options({"--config", "c", "--batch", "3", "--context", "8"})->lengths,
            (Ints{8, 8, 8}));
  const Options prompt = *parse_options({"--config", "c", "--prompt", "4,5,6"});
  EXPECT_EQ(prompt.lengths, Ints{0});
  EXPECT_EQ(prompt.prompt_steps(), 2);
}

TEST(DecodeOptionsTest, WhatIsWrongIsNamed) {
  EXPECT_EQ(parse_options({"--steps", "3"}).error().message, "--config is missing");
  EXPECT_EQ(refused_options({"--what"}), "'--what' is no option");
  EXPECT_EQ(refused_options({"--weights", "--check"}), "--weights needs a value");
  EXPECT_EQ(refused_options({"--batch", "17"}), "--batch: '17' is no whole number from 1 to 16");
  EXPECT_EQ(refused_options({"--lengths", "1,,2"}).substr(0, 34),
            "--lengths: '' is no whole number f");
  EXPECT_EQ(refused_options({"--cache-layout", "flat"}),
            "--cache-layout: 'flat' is neither contiguous nor paged");
  EXPECT_EQ(refused_options({"--context", "4", "--prompt", "1"}),
            "--context, --lengths and --prompt each say how sequences begin: give one of them");
  EXPECT_EQ(refused_options({"--batch", "2", "--lengths", "4"}),
            "--batch 2, and --lengths of 1 sequences");
}

}  // namespace
}  // namespace decode
