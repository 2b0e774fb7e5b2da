#include "cache/stores/record_store.h"
#include "support/text.h"
#include "tests/cache/samples.h"
#include "tests/cli/walkthrough.h"

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

TEST_F(UsageTest, HelpOfACommandIsAskedForInEitherOrder) {
  const Ran help = kernwright({"help", "tune"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_NE(help.out.find("--strategy"), std::string::npos);
  EXPECT_EQ(kernwright({"tune", "--help"}).out, help.out);
  EXPECT_EQ(kernwright({"tune", "vector_add", "n=4", "--help"}).out, help.out);
  EXPECT_EQ(kernwright({"help"}).out, kernwright({"--help"}).out);
  expect_usage({"help", "tunee"}, {"no command \"tunee\" (did you mean tune?)"});
}

TEST_F(UsageTest, HelpTellsOfTheEnvironmentAndOfWhatIsForPeople) {
  for (const char* command :
       {"doctor", "operations", "tune", "show", "worklist", "sweep", "prewarm", "cache", "check",
        "dispatch", "profile", "report", "--help"}) {
    const Ran help = kernwright({"help", command});
    EXPECT_EQ(help.exit_code, 0) << help.err;
    EXPECT_NE(help.out.find("KERNWRIGHT_CACHE"), std::string::npos) << help.out;
    EXPECT_NE(help.out.find("KERNWRIGHT_CUDA_PATH"), std::string::npos) << help.out;
    EXPECT_EQ(help.out.find("worker"), std::string::npos) << help.out;
    EXPECT_EQ(help.out.find("sweeper"), std::string::npos) << help.out;
    // The parser's own line of how to get more help is wider.
    if (command != std::string("--help")) expect_width(help.out, 80);
  }
}

TEST_F(UsageTest, UnknownCommandsAndOptionsAreNamed) {
  expect_usage({"tuen"}, {"no command \"tuen\" (did you mean tune?)"});
  expect_usage({"tune", "--speed", "3"}, {"no option --speed (did you mean --seed?)"});
  expect_usage({"tune", "--seconds=1", "--jsn"}, {"no option --jsn (did you mean --json?)"});
  expect_usage({"--json", "doctor"}, {"a command in front of --json"});
  expect_usage({"cache", "empty"}, {"\"empty\"", "list", "verify"});
  expect_usage({"cache"}, {"no action given: cache takes list, verify"});
  expect_usage({"doctor", "gpu"}, {"doctor takes no \"gpu\"; see kernwright doctor --help"});
  expect_usage({"profile"}, {"no problem given"});
  expect_usage({"report", "--sku", "h20"}, {"(did you mean h200?)"});
}

TEST_F(UsageTest, ProblemsThatDoNotFitTheOperationSayWhatFits) {
  const auto tune = [](std::vector<std::string> words) {
    words.insert(words.begin(), "tune");
    words.insert(words.end(), {"--sku", "h200"});
    return words;
  };
  expect_usage(tune({}), {"no problem given", "OPERATION dim=value"});
  expect_usage(tune({"matmull", "m=1"}), {"\"matmull\"", "there are ", ", vector_add"});
  expect_usage(tune({"vector_add", "n=0", "dtype=bf16"}), {"n=0", "less than 1"});
  expect_usage(tune({"vector_add", "n=many", "dtype=bf16"}), {"n=many", "integer"});
  expect_usage(tune({"vector_add", "dtype=bf16"}), {"dim n is missing"});
  expect_usage(tune({"vector_add", "n=4"}), {"dtype is missing", "bf16, fp16, fp32"});
  expect_usage(tune({"vector_add", "n=4", "dtype=int9"}), {"dtype=int9", "bf16, fp16, fp32"});
  expect_usage(tune({"vector_add", "n=4", "m=4", "dtype=bf16"}), {"m=4", "dims are n"});
  expect_usage(tune({"vector_add", "n"}), {"\"n\"", "name=value"});
  expect_usage({"show", "vector_add", "n=4", "--sku", "h200"}, {"dtype is missing"});
}

TEST_F(UsageTest, ADimIsNoOption) {
  expect_usage({"tune", "matmul", "--m=16"}, {"no option --m: ", "without dashes, m=16"});
  expect_usage({"show", "matmul", "--dtype", "bf16"}, {"without dashes, dtype=bf16"});
  expect_usage({"dispatch", "matmul", "--n"}, {"without dashes, n=VALUE"});
  EXPECT_EQ(kernwright({"sweep", "--m=16"}).err.find("without dashes"), std::string::npos);
}

TEST_F(UsageTest, WhatIsCloseIsOffered) {
  const auto tune = [](std::vector<std::string> words) {
    words.insert(words.begin(), "tune");
    return words;
  };
  expect_usage(tune({"matmull", "m=1", "--sku", "h200"}), {"(did you mean matmul?)"});
  expect_usage(tune({"rmsnorm", "row=1", "columns=8", "dtype=bf16", "--sku", "h200"}),
               {"(did you mean rows?)", "dims are rows, columns; see kernwright operations rms"});
  expect_usage(tune({"vector_add", "n=4", "dtype=bf16", "--sku", "h20"}), {"(did you mean h200?)"});
  expect_usage(tune({"vector_add", "n=4", "dtype=bf16", "--sku", "h200", "--strategy", "rank"}),
               {"(did you mean ranked?)"});
}

TEST_F(UsageTest, NamesInUseElsewhereAreUnderstood) {
  // Words that are understood get as far as the lookup, whose error has the canonical text.
  const auto show = [&](const std::string& dtype, const std::string& sku) {
    const Ran ran = kernwright({"show", "vector_add", "n=4", "dtype=" + dtype, "--sku", sku});
    EXPECT_EQ(ran.exit_code, 1) << ran.err;
    return ran.err;
  };
  EXPECT_NE(show("bfloat16", "H200").find("vector_add n=4 dtype=bf16 on h200"), std::string::npos);
  EXPECT_NE(show("half", "h100").find("vector_add n=4 dtype=fp16 on h100_sxm"), std::string::npos);
  EXPECT_NE(show("FLOAT", "RTX 4090").find("n=4 dtype=fp32 on rtx_4090"), std::string::npos);
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
  expect_usage(tune({"--sku", "h200", "--strategy", "ranked"}),
               {"--strategy", "h200", "without a GPU"});
  expect_usage(tune({"--sku", "h200", "--seed", "2"}), {"--seed", "without a GPU"});
  expect_usage(tune({"--sku", "h200", "--seconds", "0"}), {"--seconds is 0", "above 0"});
  expect_usage(tune({"--sku", "h200", "--seconds", "soon"}), {"--seconds", "soon"});
  expect_usage(tune({"--sku", "h200", "--trials", "0"}), {"--trials is 0", "1 or more"});
  const std::string list = write("list.json", R"({"problems": ["vector_add n=4096 dtype=bf16"]})");
  expect_usage({"sweep", list, "--sku", "h200", "--devices", "0,1,0"}, {"--devices names 0 twice"});
  expect_usage({"sweep", list, "--sku", "h200", "--shard", "3/2"}, {"\"3/2\"", "INDEX/COUNT"});
  expect_usage({"sweep", list, "--sku", "h200", "--seconds", "nan"}, {"--seconds is nan"});
  expect_usage({"prewarm", list, "--sku", "h200", "--min-match", "good"},
               {"--min-match is \"good\", no match"});
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

/// Standard output that cannot be written.
class FullOutputTest : public ProgramTest {
 protected:
  void expect_failure(const std::string& words) {
    for (const std::string to : {" > /dev/full", " >&-"}) {
      const Ran ran = shell(concat("kernwright ", words, to));
      EXPECT_EQ(ran.exit_code, 1) << words << to << ": " << ran.err;
      EXPECT_NE(ran.err.find("cannot write to standard output: "), std::string::npos)
          << words << to << ": " << ran.err;
    }
  }
};
using FullOutputToolkitTest = ToolkitProgramTest;

TEST_F(FullOutputTest, EveryCommandFails) {
  ASSERT_TRUE(RecordStore(cache()).put(sample_record(4096)));
  const std::string config =
      write("config.json", R"({"model_type": "llama", "hidden_size": 4096, "hidden_act": "silu",
    "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8,
    "rms_norm_eps": 1e-5, "vocab_size": 128256})");
  const std::string list = write("list.json", R"({"problems": ["vector_add n=4096 dtype=bf16"]})");
  for (const std::string& json : {std::string(), std::string(" --json")}) {
    expect_failure("doctor" + json);
    expect_failure("operations" + json);
    expect_failure("operations softmax" + json);
    expect_failure("show matmul m=4096 n=6144 k=4096 dtype=bf16 --sku h200" + json);
    expect_failure(concat("prewarm ", list, " --verify --sku h200", json));
    expect_failure(concat("sweep ", list, " --dry-run --sku h200", json));
    expect_failure("cache list" + json);
    expect_failure("cache verify" + json);
    expect_failure("cache compact" + json);
    expect_failure("cache misses" + json);
  }
  expect_failure("worklist " + config + " --tokens 1");
  expect_failure("--help");
  expect_failure("--version");
  expect_failure("help tune");
}

TEST_F(FullOutputToolkitTest, SoDoThoseThatCompile) {
  const std::string list = write("list.json", R"({"problems": ["vector_add n=4096 dtype=bf16"]})");
  for (const auto& [path, text] : read_walkthrough().files) write("home" + path.substr(1), text);
  const std::string own = (home() / "my_templates").string();
  for (const std::string& words : {std::string("tune vector_add n=4096 dtype=bf16 --sku h200"),
                                   "sweep " + list + " --sku h200", "check " + own}) {
    const Ran ran = shell("kernwright " + words + " > /dev/full");
    EXPECT_EQ(ran.exit_code, 1) << words;
    EXPECT_NE(ran.err.find("cannot write to standard output: "), std::string::npos) << ran.err;
  }
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
