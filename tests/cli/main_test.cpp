#include "tests/cli/run_program.h"

namespace kernwright {
namespace {

/// Wrong usage: exits 2, prints nothing on standard output, names the thing on standard error.
class UsageTest : public ProgramTest {
 protected:
  void expect_usage(std::vector<std::string> arguments, const std::vector<std::string>& named) {
    const Ran ran = kernwright(std::move(arguments));
    EXPECT_EQ(ran.exit_code, 2) << ran.err;
    EXPECT_EQ(ran.out, "");
    for (const std::string& word : named) {
      EXPECT_NE(ran.err.find(word), std::string::npos) << word << " is not in: " << ran.err;
    }
  }
};

TEST_F(UsageTest, HelpAndVersionAreNoMistakes) {
  const Ran help = kernwright({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const char* command : {"doctor", "check", "tune", "sweep", "prewarm", "show", "cache"}) {
    EXPECT_NE(help.out.find(command), std::string::npos) << command;
  }
  const Ran version = kernwright({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_EQ(version.out.rfind("kernwright ", 0), 0U) << version.out;
}

TEST_F(UsageTest, NoCommandShowsTheCommands) {
  const Ran ran = kernwright({});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_NE(ran.out.find("prewarm"), std::string::npos);
}

TEST_F(UsageTest, UnknownCommandsAndOptionsAreNamed) {
  expect_usage({"tuen"}, {"tuen"});
  expect_usage({"tune", "--speed", "3"}, {"--speed"});
  expect_usage({"cache", "empty"}, {"\"empty\"", "list", "verify"});
  expect_usage({"cache"}, {"list", "verify"});
}

TEST_F(UsageTest, ProblemsThatDoNotFitTheOperationSayWhatFits) {
  const auto tune = [](std::vector<std::string> words) {
    words.insert(words.begin(), "tune");
    words.insert(words.end(), {"--sku", "h200"});
    return words;
  };
  expect_usage(tune({}), {"no problem given", "OPERATION dim=value"});
  expect_usage(tune({"matmull", "m=1"}), {"\"matmull\"", "there are bias_activation, "});
  expect_usage(tune({"vector_add", "n=0", "dtype=bf16"}), {"n=0", "less than 1"});
  expect_usage(tune({"vector_add", "n=many", "dtype=bf16"}), {"n=many", "integer"});
  expect_usage(tune({"vector_add", "dtype=bf16"}), {"dim n is missing"});
  expect_usage(tune({"vector_add", "n=4"}), {"dtype is missing", "bf16, fp16, fp32"});
  expect_usage(tune({"vector_add", "n=4", "dtype=int9"}), {"dtype=int9", "bf16, fp16, fp32"});
  expect_usage(tune({"vector_add", "n=4", "m=4", "dtype=bf16"}), {"m=4", "dims are n"});
  expect_usage(tune({"vector_add", "n"}), {"\"n\"", "name=value"});
  expect_usage({"show", "vector_add", "n=4", "--sku", "h200"}, {"dtype is missing"});
}

TEST_F(UsageTest, OptionsSayWhichValuesTheyTake) {
  const std::vector<std::string> problem = {"vector_add", "n=4096", "dtype=bf16"};
  const auto tune = [&](std::vector<std::string> options) {
    std::vector<std::string> words{"tune"};
    words.insert(words.end(), problem.begin(), problem.end());
    words.insert(words.end(), options.begin(), options.end());
    return words;
  };
  expect_usage(tune({"--sku", "h9000"}), {"\"h9000\"", "h200", "rtx_4090"});
  expect_usage(tune({"--sku", "h200", "--strategy", "lucky"}),
               {"\"lucky\"", "exhaustive, random", "portfolio"});
  expect_usage(tune({"--sku", "h200", "--seconds", "0"}), {"--seconds is 0", "above 0"});
  expect_usage(tune({"--sku", "h200", "--seconds", "soon"}), {"--seconds", "soon"});
  expect_usage(tune({"--sku", "h200", "--trials", "0"}), {"--trials is 0", "1 or more"});
  expect_usage({"check", "--samples", "-1"}, {"--samples is -1", "0 or more"});
  expect_usage({"check", "--samples", "2", "--all"}, {"--all", "--samples"});
  expect_usage({"check", "--all", "--sku", "h9000"}, {"\"h9000\"", "h200", "rtx_4090"});
}

TEST_F(UsageTest, WorklistsAreReadBeforeAnythingElse) {
  const std::string list = write("list.json", R"({"problems": [
    "vector_add n=4096 dtype=bf16",
    {"operation": "vector_add", "dims": {"n": "many"}}
  ]})");
  expect_usage({"sweep", list, "--sku", "h200"}, {list + ":3", "dim n", "\"many\""});
  const std::string unknown = write("unknown.json", R"({"problems": ["vector_sub n=4"]})");
  for (const char* command : {"sweep", "prewarm"}) {
    expect_usage({command, unknown, "--sku", "h200"}, {"\"vector_sub\"", "vector_add"});
    expect_usage({command, "--sku", "h200"}, {"no WORKLIST.json given"});
    const Ran missing = kernwright({command, (dir_ / "none.json").string(), "--sku", "h200"});
    EXPECT_EQ(missing.exit_code, 1);
    EXPECT_NE(missing.err.find("none.json"), std::string::npos) << missing.err;
  }
  EXPECT_FALSE(std::filesystem::exists(cache()));
}

TEST_F(UsageTest, WithoutAGpuTheErrorSaysHowToGoOn) {
  if (cuda_device_count()) GTEST_SKIP() << "there is a GPU here";
  const Ran ran = kernwright({"tune", "vector_add", "n=4096", "dtype=bf16"});
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_NE(ran.err.find("no GPU"), std::string::npos) << ran.err;
  EXPECT_NE(ran.err.find("h200"), std::string::npos) << ran.err;
}

}  // namespace
}  // namespace kernwright
