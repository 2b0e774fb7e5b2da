#include "cache/entries/checked_files.h"

#include <filesystem>
#include <gtest/gtest.h>

#include "cache/entries/entry_file.h"
#include "support/files.h"
#include "support/hash.h"
#include "tests/temp_dir.h"

namespace kernwright {
namespace {

TEST(CheckedFilesTest, OnlyWhatWasCheckedIsReadFromThenOn) {
  const ScopedTempDir folder;
  const std::string file = (folder / "v1" / "file").native();
  const std::string bytes = encode_entry({"record", "key", "front", "body"});
  const std::string other = encode_entry({"record", "key", "front", "BODY"});
  const auto write = [&](const std::string& path, const std::string& content) {
    ASSERT_TRUE(publish_file(path, content));
  };
  write(file, other);
  EXPECT_TRUE(read_entry(file, "record"));
  EXPECT_TRUE(read_front(file, "record"));

  remember_checked(folder.path(), {{"v1/file", digest_of(bytes).hex()}});
  for (const auto& read : {read_entry, read_front}) {
    const Lookup<EntryFile> replaced = read(file, "record", {});
    EXPECT_EQ(replaced.reason, MissReason::corrupt);
    EXPECT_EQ(replaced.detail, file + ": it was replaced after its folder was checked");
  }
  write(file, bytes);
  EXPECT_EQ(read_entry(file, "record").value->body, "body");
  EXPECT_EQ(read_front(file, "record").value->body, "");
  const std::string added = (folder / "v1" / "added").native();
  write(added, bytes);
  EXPECT_FALSE(read_entry(added, "record")) << "it was not there when the folder was checked";

  remember_checked(folder.path(), {{"v1/added", digest_of(bytes).hex()}});
  EXPECT_TRUE(read_entry(added, "record"));
  EXPECT_FALSE(read_entry(file, "record"));
}

}  // namespace
}  // namespace kernwright
