#include <algorithm>
#include <set>

#include "support/text.h"
#include "tests/cli/walkthrough.h"

namespace kernwright {
namespace {

using ::testing::HasSubstr;
using OperationsTest = ProgramTest;
using OperationsToolkitTest = ToolkitProgramTest;

/// The README of an operation.
std::string_view readme_of(const std::string& operation) {
  for (const EmbeddedFile& file : embedded_readmes()) {
    if (file.path == operation + "/README.md") return file.content;
  }
  return {};
}

TEST_F(OperationsTest, ListsThemAll) {
  const Ran ran = kernwright({"operations"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  expect_width(ran.out, 80);
  const nlohmann::json all = kernwright({"operations", "--json"}).json()["operations"];
  EXPECT_GE(all.size(), 10U);
  const std::vector<std::string_view> lines = split(ran.out, '\n');
  const std::size_t column = lines.front().find("computes");
  ASSERT_TRUE(lines.front().starts_with("  operation ") && column != std::string_view::npos);
  EXPECT_THAT(ran.out, HasSubstr("\nWhat one of them takes: kernwright operations NAME\n"));
  std::size_t next = 1;
  for (const nlohmann::json& operation : all) {
    // Its name, and beside it what it computes, over as many lines as that takes.
    std::string shown;
    const std::string name = operation["operation"];
    ASSERT_TRUE(next < lines.size() && lines[next].starts_with("  " + name + " ")) << name;
    do {
      shown += concat(shown.empty() ? "" : " ", lines[next++].substr(column));
    } while (next < lines.size() && lines[next].starts_with("   "));
    EXPECT_EQ(shown, operation["description"].get<std::string>());
  }
}

TEST_F(OperationsTest, SaysWhatOneTakes) {
  const Ran ran = kernwright({"operations", "rmsnorm"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  expect_width(ran.out, 80);
  for (const char* line : {
           "\n  rows     a range   has to be given\n",
           "\n  columns  one size  has to be given\n",
           "\n  out    as dtype              bf16, fp16, fp32, fp8_e4m3, int8\n",
           "\n  weight    scale                 none, scale\n",
           "\n  r             in      dtype  [rows, columns], where residual=add\n",
           "\n  eps           scalar  fp32   default 1e-06\n",
           "\n  rmsnorm/row     sm_80 and newer  ",
           "kernwright tune rmsnorm rows=4096 columns=8192 dtype=fp16\n",
       }) {
    EXPECT_THAT(ran.out, HasSubstr(line));
  }
  const nlohmann::json json = kernwright({"operations", "rmsnorm", "--json"}).json();
  EXPECT_EQ(json["dims"][0]["name"], "rows");
  EXPECT_EQ(json["dims"][0]["bind"], "bucket");
  EXPECT_EQ(json["dims"][1]["bind"], "exact");
  EXPECT_EQ(json["flags"][0]["default"], "scale");
  EXPECT_EQ(json["tensors"][1]["when"], "residual == residual_add");
  EXPECT_EQ(json["scalars"][0]["default"], 1e-6);
  EXPECT_EQ(json["templates"][0]["min_arch"], 80);
}

TEST_F(OperationsTest, EveryOneFitsATerminal) {
  const nlohmann::json all = kernwright({"operations", "--json"}).json()["operations"];
  for (const nlohmann::json& operation : all) {
    const Ran ran = kernwright({"operations", operation["operation"]});
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    expect_width(ran.out, 80);
  }
}

TEST_F(OperationsTest, AnUnknownOneIsAMistake) {
  const Ran ran = kernwright({"operations", "matmull"});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.err, HasSubstr("no operation \"matmull\" (did you mean matmul?)"));
}

TEST_F(OperationsTest, ThoseOfAFolderAreThereToo) {
  for (const auto& [path, text] : read_walkthrough().files) write("home" + path.substr(1), text);
  const std::string folder = (home() / "my_templates").string();
  const Ran ran = kernwright({"operations", "scaled_add", "--templates", folder});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("scaled_add/tiles"));
}

TEST_F(OperationsTest, EveryReadmeNamesWhatItsOperationTakes) {
  const nlohmann::json all = kernwright({"operations", "--json"}).json()["operations"];
  for (const nlohmann::json& operation : all) {
    const std::string name = operation["operation"];
    const std::string_view text = readme_of(name);
    ASSERT_FALSE(text.empty()) << name;
    std::vector<std::string> taken;
    for (const char* part : {"dims", "dtypes", "flags", "tensors", "scalars"}) {
      for (const nlohmann::json& each : operation[part]) {
        taken.push_back(each["name"]);
        if (std::string(part) != "flags") continue;
        for (const nlohmann::json& value : each["values"]) taken.push_back(value);
      }
    }
    // Words, so that a name in another does not count.
    std::set<std::string> words;
    std::string word;
    for (const char c : std::string(text) + " ") {
      if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_') {
        word += c;
      } else {
        words.insert(word);
        word.clear();
      }
    }
    for (const std::string& each : taken) {
      EXPECT_TRUE(words.contains(each)) << "templates/" << name << "/README.md lacks " << each;
    }
    EXPECT_NE(text.find(concat("kernwright tune ", name, " ")), std::string_view::npos) << name;
  }
}

/// The lines of a block that begins with "    $ " in a README: a command and what it prints.
struct Shown {
  std::string command;
  std::string output;
};
std::vector<Shown> shown_in(std::string_view text) {
  constexpr std::string_view kPrompt = "    $ ";
  constexpr std::string_view kIndent = "    ";
  std::vector<Shown> found;
  bool inside = false;
  for (const std::string_view line : split(text, '\n')) {
    if (line.starts_with(kPrompt)) {
      found.push_back({std::string(line.substr(kPrompt.size())), ""});
      inside = true;
    } else if (!line.starts_with(kIndent)) {
      inside = false;
    } else if (inside) {
      found.back().output += concat(line.substr(kIndent.size()), "\n");
    }
  }
  return found;
}

TEST_F(OperationsTest, EveryReadmeShowsACommandThatIsRight) {
  const nlohmann::json all = kernwright({"operations", "--json"}).json()["operations"];
  for (const nlohmann::json& operation : all) {
    const std::vector<Shown> shown = shown_in(readme_of(operation["operation"]));
    ASSERT_FALSE(shown.empty()) << operation["operation"];
    const std::string tune = shown[0].command;
    constexpr std::string_view kCommand = "kernwright tune ";
    ASSERT_EQ(tune.rfind(kCommand, 0), 0U) << tune;
    // It gets as far as the lookup, and so names an operation, dims and flags that there are.
    const Ran ran = shell("kernwright show " + tune.substr(kCommand.size()));
    EXPECT_EQ(ran.exit_code, 1) << tune;
    EXPECT_THAT(ran.err, HasSubstr("no record for "));
    expect_width(shown[0].output, 80);
  }
}

TEST_F(OperationsToolkitTest, TheExampleOfVectorAddIsWhatTheToolPrints) {
  const std::vector<Shown> shown = shown_in(readme_of("vector_add"));
  ASSERT_FALSE(shown.empty());
  const Ran ran = shell(shown[0].command);
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  // All but when it was made.
  const auto lasting = [](const std::string& output) {
    std::string kept;
    for (const std::string_view line : split(output, '\n')) {
      const std::string_view label = trim(line).substr(0, trim(line).find(' '));
      if (label == "made") continue;
      kept += concat(line, "\n");
    }
    return kept;
  };
  EXPECT_EQ(lasting(ran.out), lasting(shown[0].output));
}

}  // namespace
}  // namespace kernwright
