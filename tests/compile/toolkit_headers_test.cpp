#include "compile/toolkit_headers.h"

#include <gtest/gtest.h>

#include "support/files.h"
#include "tests/temp_dir.h"

namespace kernwright {
namespace {

namespace fs = std::filesystem;

class ToolkitHeadersTest : public ::testing::Test {
 protected:
  void add(const fs::path& name, std::string_view text) {
    ASSERT_TRUE(publish_file(root_ / name, text));
  }

  /// The names reached from `text`, each with its text.
  std::map<std::string, std::string> reached(std::string_view text) {
    ToolkitHeaders headers({root_, root_ / "cccl"});
    const auto found = headers.reached_by(scan_includes(text).includes);
    EXPECT_TRUE(found) << found.error().message;
    std::map<std::string, std::string> texts;
    if (found) {
      for (const auto& [name, file] : *found) texts[name] = file->text;
    }
    return texts;
  }

  ScopedTempDir dir_;
  const fs::path root_ = dir_.path() / "include";
};

TEST_F(ToolkitHeadersTest, AllThatIsReachedIsFoundByTheNameItHasThere) {
  add("a.h", "#include \"crt/b.h\"\n#include <cuda/std/c>\n#include <cmath>\n");
  add("crt/b.h", "#include \"d.h\"\n");
  add("crt/d.h", "d");
  add("cccl/cuda/std/c", "c");
  add("other.h", "o");
  const auto texts = reached("#include <a.h>\n");
  ASSERT_EQ(texts.size(), 4U);
  EXPECT_EQ(texts.at("d.h"), "d");
  EXPECT_EQ(texts.at("cuda/std/c"), "c");
}

TEST_F(ToolkitHeadersTest, NothingOutsideIsRead) {
  ASSERT_TRUE(publish_file(dir_.path() / "secret.h", "secret"));
  add("a.h", "#include \"../secret.h\"\n");
  EXPECT_EQ(reached("#include <a.h>\n#include \"../secret.h\"\n").size(), 1U);
  EXPECT_TRUE(reached("#include <x/../../secret.h>\n").empty());
}

TEST_F(ToolkitHeadersTest, AHeaderWhoseIncludeAMacroNamesIsNotOffered) {
  add("a.h", "#include CHOSEN\n");
  EXPECT_TRUE(reached("#include <a.h>\n").empty());
}

TEST_F(ToolkitHeadersTest, OneNameForTwoFilesIsRefused) {
  add("x/a.h", "#include \"same.h\"\n");
  add("y/b.h", "#include \"same.h\"\n");
  add("x/same.h", "1");
  add("y/same.h", "2");
  ToolkitHeaders headers({root_});
  const auto found =
      headers.reached_by(scan_includes("#include <x/a.h>\n#include <y/b.h>\n").includes);
  ASSERT_FALSE(found);
  EXPECT_NE(found.error().message.find("same.h means two files"), std::string::npos)
      << found.error().message;
}

}  // namespace
}  // namespace kernwright
