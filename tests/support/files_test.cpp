#include "support/files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <thread>

#include "support/text.h"
#include "tests/temp_dir.h"

namespace kernwright {
namespace {

TEST(FilesTest, PublishThenReadGivesTheBytes) {
  const ScopedTempDir dir;
  const std::string bytes("a\0b\n", 4);
  ASSERT_TRUE(publish_file(dir / "new/folder/file", bytes));
  const Result<std::string> read = read_file(dir / "new/folder/file");
  ASSERT_TRUE(read);
  EXPECT_EQ(*read, bytes);
}

TEST(FilesTest, PublishReplacesAndLeavesNoTemporaryFile) {
  const ScopedTempDir dir;
  ASSERT_TRUE(publish_file(dir / "file", "old"));
  ASSERT_TRUE(publish_file(dir / "file", "new"));
  EXPECT_EQ(*read_file(dir / "file"), "new");
  EXPECT_EQ(list_directory(dir.path()), std::vector<std::string>{"file"});
}

TEST(FilesTest, PublishHonoursTheUmask) {
  const ScopedTempDir dir;
  const mode_t before = ::umask(027);
  ASSERT_TRUE(publish_file(dir / "file", "x"));
  ::umask(before);
  struct stat status{};
  ASSERT_EQ(::stat((dir / "file").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640U);
}

TEST(FilesTest, FailedPublishNamesThePathAndLeavesNothing) {
  const ScopedTempDir dir;
  std::filesystem::create_directory(dir / "taken");
  ASSERT_TRUE(publish_file(dir / "taken/inside", "x"));
  const Result<void> published = publish_file(dir / "taken", "x");
  ASSERT_FALSE(published);
  EXPECT_EQ(published.error().code, ErrorCode::io);
  EXPECT_NE(published.error().message.find("taken"), std::string::npos);
  EXPECT_EQ(list_directory(dir.path()), std::vector<std::string>{"taken"});
}

TEST(FilesTest, ReadersSeeTheOldOrTheNewFileWhole) {
  const ScopedTempDir dir;
  const std::string a(100000, 'a');
  const std::string b(100000, 'b');
  ASSERT_TRUE(publish_file(dir / "file", a));
  std::thread writer([&] {
    for (int i = 0; i < 50; ++i) EXPECT_TRUE(publish_file(dir / "file", i % 2 == 0 ? b : a));
  });
  for (int i = 0; i < 50; ++i) {
    const Result<std::string> read = read_file(dir / "file");
    EXPECT_TRUE(read && (*read == a || *read == b));
  }
  writer.join();
}

TEST(FilesTest, MissingFileIsNotFound) {
  const ScopedTempDir dir;
  const Result<std::string> read = read_file(dir / "nothing");
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::not_found);
  const Result<std::string> folder = read_file(dir.path());
  ASSERT_FALSE(folder);
  EXPECT_EQ(folder.error().code, ErrorCode::io);
}

TEST(FilesTest, LinesOfConcurrentWritersNeverMix) {
  const ScopedTempDir dir;
  std::vector<std::thread> writers;
  for (const char letter : {'a', 'b', 'c', 'd'}) {
    writers.emplace_back([&, letter] {
      for (int i = 0; i < 100; ++i) {
        EXPECT_TRUE(append_line(dir / "log", std::string(300, letter)));
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  const std::string text = *read_file(dir / "log");
  std::vector<std::string_view> lines = split(text, '\n');
  ASSERT_EQ(lines.size(), 401U);
  EXPECT_EQ(lines.back(), "");
  lines.pop_back();
  for (const std::string_view line : lines) {
    ASSERT_EQ(line.size(), 300U);
    EXPECT_EQ(line.find_first_not_of(line.front()), std::string_view::npos);
  }
}

TEST(FilesTest, DirectoryNamesAreSorted) {
  const ScopedTempDir dir;
  for (const char* name : {"c", "a", "b"}) ASSERT_TRUE(publish_file(dir / name, ""));
  EXPECT_EQ(list_directory(dir.path()), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_TRUE(list_directory(dir / "missing").empty());
}

}  // namespace
}  // namespace kernwright
