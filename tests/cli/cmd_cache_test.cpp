#include "tests/cli/run_program.h"

namespace kernwright {
namespace {

using CacheTest = ProgramTest;

TEST_F(CacheTest, AnEmptyCacheIsInOrder) {
  const Ran list = kernwright({"cache", "list"});
  EXPECT_EQ(list.exit_code, 0) << list.err;
  EXPECT_NE(list.out.find("0 artifacts in " + cache().string()), std::string::npos) << list.out;
  const Ran verify = kernwright({"cache", "verify", "--json"});
  EXPECT_EQ(verify.exit_code, 0) << verify.err;
  EXPECT_EQ(verify.json()["records"], 0);
  EXPECT_FALSE(std::filesystem::exists(cache()));
}

/// A cache with one record, predicted.
class CacheToolkitTest : public ToolkitProgramTest {
 protected:
  void SetUp() override {
    ToolkitProgramTest::SetUp();
    if (IsSkipped()) return;
    const Ran ran =
        kernwright({"tune", "vector_add", "n=4096", "dtype=bf16", "--sku", "h200", "--json"});
    ASSERT_EQ(ran.exit_code, 0) << ran.err;
    winner_ = ran.json()["winner"]["artifact"];
  }

  std::filesystem::path find(const std::string& extension, const std::string& stem = {}) const {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(cache())) {
      const std::filesystem::path& path = entry.path();
      if (path.extension() == extension && (stem.empty() || path.stem() == stem)) return path;
    }
    ADD_FAILURE() << "no file " << stem << extension;
    return {};
  }

  /// Changes one byte in the middle of the file.
  static void damage(const std::filesystem::path& path) {
    std::string bytes = content(path);
    ASSERT_FALSE(bytes.empty());
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    std::filesystem::permissions(path, std::filesystem::perms::owner_write,
                                 std::filesystem::perm_options::add);
    std::ofstream(path, std::ios::binary) << bytes;
  }

  std::string winner_;
};

TEST_F(CacheToolkitTest, ListNamesTheRecords) {
  const Ran text = kernwright({"cache", "list"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_NE(text.out.find("vector_add n=4096 dtype=bf16"), std::string::npos) << text.out;
  const nlohmann::json list = kernwright({"cache", "list", "--json"}).json();
  EXPECT_EQ(list["root"], cache().string());
  ASSERT_EQ(list["records"].size(), 1U);
  EXPECT_EQ(list["records"][0]["winner"]["artifact"], winner_);
  EXPECT_GT(list["artifacts"], 0);
  EXPECT_EQ(kernwright({"cache", "verify"}).exit_code, 0);
}

TEST_F(CacheToolkitTest, ADamagedArtifactIsReportedWithTheRecordThatNeedsIt) {
  const std::filesystem::path path = find(".kwa", winner_);
  damage(path);
  const Ran text = kernwright({"cache", "verify"});
  EXPECT_EQ(text.exit_code, 1);
  EXPECT_NE(text.out.find(path.string() + ": corrupt"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find(find(".kwr").string() + ": its winner's artifact " + winner_),
            std::string::npos)
      << text.out;
  const nlohmann::json report = kernwright({"cache", "verify", "--json"}).json();
  EXPECT_EQ(report["defects"].size(), 2U);
}

TEST_F(CacheToolkitTest, ADamagedRecordIsReportedAndNoAnswer) {
  const std::filesystem::path path = find(".kwr");
  damage(path);
  const Ran verify = kernwright({"cache", "verify"});
  EXPECT_EQ(verify.exit_code, 1);
  EXPECT_NE(verify.out.find(path.string() + ": corrupt"), std::string::npos) << verify.out;
  const Ran list = kernwright({"cache", "list"});
  EXPECT_EQ(list.exit_code, 0);
  EXPECT_NE(list.err.find(path.string()), std::string::npos) << list.err;
  const Ran show = kernwright({"show", "vector_add", "n=4096", "dtype=bf16", "--sku", "h200"});
  EXPECT_EQ(show.exit_code, 1);
  EXPECT_NE(show.err.find("corrupt"), std::string::npos) << show.err;
}

}  // namespace
}  // namespace kernwright
