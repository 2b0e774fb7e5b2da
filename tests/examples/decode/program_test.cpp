#include <cstdio>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <sys/wait.h>
#include <utility>

#include "examples/decode/config.h"
#include "examples/decode/step.h"
#include "tests/temp_dir.h"

namespace decode {
namespace {

/// Runs the program that lies beside the test, and kernwright, with a cache of its own.
class DecodeProgramTest : public ::testing::Test {
 protected:
  struct Ran {
    int exit_code = -1;
    std::string printed;
  };

  Ran run(const std::string& arguments, const char* program = "kernwright_decode") const {
    const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    const std::string line = "KERNWRIGHT_CACHE=" + (dir_ / "cache").string() + " " +
                             (folder / program).string() + " " + arguments + " 2>&1";
    Ran ran;
    std::FILE* pipe = ::popen(line.c_str(), "r");
    char buffer[4096];
    while (const std::size_t count = std::fread(buffer, 1, sizeof buffer, pipe)) {
      ran.printed.append(buffer, count);
    }
    const int status = ::pclose(pipe);
    if (WIFEXITED(status)) ran.exit_code = WEXITSTATUS(status);
    return ran;
  }

  /// Returns "--config FILE" for a tiny model with the fields `more`, which may replace its own.
  std::string tiny(const std::string& more) const {
    const std::string file = (dir_ / "config.json").string();
    std::ofstream config(file);
    config << '{';
    for (const auto& [field, value] : {std::pair("\"hidden_size\"", 256),
                                       {"\"num_hidden_layers\"", 3},
                                       {"\"num_attention_heads\"", 6},
                                       {"\"num_key_value_heads\"", 2},
                                       {"\"head_dim\"", 64},
                                       {"\"intermediate_size\"", 512},
                                       {"\"vocab_size\"", 1000}}) {
      if (more.find(field) == std::string::npos) config << field << ": " << value << ", ";
    }
    config << more << '}';
    return "--config " + file + " ";
  }

  void expect_right(const std::string& arguments) const {
    const Ran ran = run(arguments + " --check");
    if (ran.exit_code == 77) GTEST_SKIP() << ran.printed;
    EXPECT_EQ(ran.exit_code, 0) << ran.printed;
    EXPECT_NE(ran.printed.find("check     passed"), std::string::npos) << ran.printed;
  }

  const kernwright::ScopedTempDir dir_;
};

TEST_F(DecodeProgramTest, WhatIsWrongIsSaidBeforeAGpuIsLookedFor) {
  Ran ran = run("--steps 0");
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_NE(ran.printed.find("--steps: '0' is no whole number"), std::string::npos) << ran.printed;
  ran = run("--config " + (dir_ / "none.json").string());
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_NE(ran.printed.find("none.json: cannot be read"), std::string::npos) << ran.printed;
  ran = run(tiny(R"("model_type": "gpt2")"));
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_NE(ran.printed.find("model_type is \"gpt2\""), std::string::npos) << ran.printed;
  ran = run(tiny(R"("model_type": "llama")") + "--prompt 3,1000");
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_NE(ran.printed.find("token 1000 is not below vocab_size 1000"), std::string::npos);
  ran = run(tiny(R"("model_type": "llama")") + "--weights " + dir_.path().string());
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_NE(ran.printed.find("has no .safetensors"), std::string::npos) << ran.printed;
}

TEST_F(DecodeProgramTest, AConfigThatWouldEndTheProgramIsRefused) {
  const auto refused = [this](const std::string& arguments, const std::string& why) {
    const Ran ran = run(arguments);
    EXPECT_EQ(ran.exit_code, 1) << arguments << ran.printed;
    EXPECT_NE(ran.printed.find(why), std::string::npos) << arguments << ran.printed;
  };
  const std::string llama = R"("model_type": "llama")";
  for (const char* field :
       {"vocab_size", "intermediate_size", "num_hidden_layers", "hidden_size", "head_dim"}) {
    refused(tiny(llama + R"(, ")" + field + R"(": 1073741824)"),
            std::string(field) + " 1073741824");
  }
  const std::string deep(200'000, '[');
  for (const char* field : {"hidden_act", "rope_scaling", "model_type", "hidden_size"}) {
    const std::string type = std::string_view(field) == "model_type" ? "" : llama + ", ";
    refused(tiny(type + '"' + field + "\": " + deep + std::string(200'000, ']')),
            "nested deeper than 64");
  }
  for (const char* file : {"/dev/zero", "/dev/full", "/dev/stdin < /dev/zero"}) {
    refused(std::string("--config ") + file, "not a regular file");
  }
  const std::string pipe = (dir_ / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  refused("--config " + pipe, "not a regular file");
}

TEST_F(DecodeProgramTest, WhatAFileSaysIsShownWithoutWhatATerminalObeys) {
  const Ran ran = run(tiny("\"model_type\": \"a\u009b31m\u202e\u00e9\""));
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_NE(ran.printed.find(R"(model_type "a\u009b31m\u202e)"
                             "\u00e9"),
            std::string::npos)
      << ran.printed;
  EXPECT_NE(run("--config '" + (dir_ / "\x1b[31m").string() + "'").printed.find(R"(\x1b[31m)"),
            std::string::npos);
}

TEST_F(DecodeProgramTest, TheModelsWorklistHasEveryProblemOfAStep) {
  for (const char* type : {"llama", "qwen3"}) {
    const std::string file = tiny(R"("model_type": ")" + std::string(type) + "\"").substr(9);
    std::stringstream text;
    text << std::ifstream(file.substr(0, file.size() - 1)).rdbuf();
    const kw::Result<ModelConfig> config = parse_config(text.str(), file);
    ASSERT_TRUE(config) << config.error().message;
    const std::string listed =
        run("worklist " + file + "--tokens 1,16 --contexts 96", "kernwright").printed;
    for (const std::int64_t batch : {1, 16}) {
      for (const bool paged : {false, true}) {
        const DecodeShape shape{batch, 96, batch * 96, paged};
        StepMemory memory;
        memory.layers.resize(at(config->layers));
        for (const StepKernel& kernel : decode_step(*config, shape, memory)) {
          const std::string asked =
              run("show --sku h100 " + kernel.problem.text(), "kernwright").printed;
          constexpr std::string_view kBefore = "no record for ", kBehind = " on h100";
          const std::size_t begin = asked.find(kBefore), end = asked.find(kBehind);
          ASSERT_NE(begin, std::string::npos) << asked;
          const std::string problem =
              asked.substr(begin + kBefore.size(), end - begin - kBefore.size());
          EXPECT_NE(listed.find("\"" + problem + "\""), std::string::npos) << problem;
        }
      }
    }
  }
}

using DecodeProgramGpuTest = DecodeProgramTest;

TEST_F(DecodeProgramGpuTest, AQwen3IsRightWithPages) {
  expect_right(tiny(R"("model_type": "qwen3", "tie_word_embeddings": true)") +
               "--lengths 200,0,37 --steps 4 --cache-layout paged");
}

TEST_F(DecodeProgramGpuTest, ALlamaIsRightBehindAPrompt) {
  expect_right(tiny(R"("model_type": "llama")") + "--prompt 5,7,900 --batch 2 --steps 20");
}

}  // namespace
}  // namespace decode
