#include <cstdlib>
#include <regex>
#include <string>
#include <utility>

#include "model/files/embedded_files.h"
#include "support/files.h"
#include "support/text.h"
#include "tests/cli/run_program.h"

namespace kernwright {

/// The files of tests/data/cli, embedded when this program is built.
std::span<const EmbeddedFile> embedded_golden();

namespace {

/// Replaces text that another machine, another minute or another version prints differently.
std::string lasting(std::string text, const std::string& folder) {
  for (std::size_t at = 0; (at = text.find(folder, at)) != std::string::npos;) {
    text.replace(at, folder.size(), "FOLDER");
  }
  static const std::pair<std::regex, const char*> rules[] = {
      {std::regex(R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)"), "DATE"},
      {std::regex(R"(nvrtc \d+\.\d+( [0-9a-f]+\.*)?)"), "nvrtc VERSION"},
      {std::regex(R"(kernwright \d+\.\d+\.\d+( \(\w+\))?)"), "kernwright VERSION"},
      {std::regex(R"(GPU +none: [^\n]*(\n {12}[^\n]*)*)"), "GPU       none: REASON"},
  };
  for (const auto& [pattern, word] : rules) text = std::regex_replace(text, pattern, word);
  return text;
}

/// Holds what a command prints to a file of tests/data/cli. With $KERNWRIGHT_GOLDEN, a folder, it
/// writes the file there instead.
class Golden {
 public:
  static void expect(const std::string& name, const Ran& ran, const std::filesystem::path& folder) {
    ASSERT_EQ(ran.exit_code, 0) << ran.err;
    expect_width(ran.out, 80);
    const std::string text = lasting(ran.out, folder.string());
    if (const char* golden = std::getenv("KERNWRIGHT_GOLDEN")) {
      ASSERT_TRUE(publish_file(std::filesystem::path(golden) / name, text));
      return;
    }
    for (const EmbeddedFile& file : embedded_golden()) {
      if (file.path == name) {
        EXPECT_EQ(text, std::string(file.content)) << "CONTRIBUTING.md says how to accept it";
        return;
      }
    }
    FAIL() << "there is no tests/data/cli/" << name;
  }
};

using GoldenTest = ProgramTest;
using GoldenToolkitTest = ToolkitProgramTest;

TEST_F(GoldenTest, OperationsDescribesOne) {
  Golden::expect("operations_vector_add.txt", kernwright({"operations", "vector_add"}),
                 dir_.path());
}

TEST_F(GoldenToolkitTest, DoctorSaysWhatIsMissing) {
  if (cuda_device_count()) GTEST_SKIP() << "there is a GPU here";
  Golden::expect("doctor.txt", kernwright({"doctor"}), dir_.path());
}

TEST_F(GoldenToolkitTest, APredictionIsPrintedShownAndPlanned) {
  const std::vector<std::string> problem{"vector_add", "n=4096", "dtype=bf16", "--sku", "h200"};
  const auto of = [&](const std::string& command) {
    std::vector<std::string> words{command};
    words.insert(words.end(), problem.begin(), problem.end());
    return kernwright(words);
  };
  Golden::expect("tune.txt", of("tune"), dir_.path());
  Golden::expect("show.txt", of("show"), dir_.path());
  const std::filesystem::path list = write("list.json", R"({"problems": [
    "vector_add n=4096 dtype=bf16", "vector_add n=8192 dtype=fp32", "reduce rows=8 columns=64 dtype=fp32"]})");
  Golden::expect("sweep_dry_run.txt",
                 kernwright({"sweep", list.string(), "--dry-run", "--sku", "h200"}), dir_.path());
}

}  // namespace
}  // namespace kernwright
