#include "support/files.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "support/text.h"
#include "tests/results.h"
#include "tests/support/faulty_files.h"
#include "tests/temp_dir.h"

namespace kernwright {
namespace {

using ::testing::HasSubstr;

TEST(FilesTest, PublishThenReadGivesTheBytes) {
  const ScopedTempDir dir;
  const std::string bytes("a\0b\n", 4);
  ASSERT_TRUE(publish_file(dir / "new/folder/file", bytes));
  const std::string read = must(read_file(dir / "new/folder/file"));
  EXPECT_EQ(read, bytes);
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
  EXPECT_THAT(publish_file(dir / "taken", "x"), Fails(ErrorCode::io, HasSubstr("taken")));
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
  EXPECT_THAT(read_file(dir / "nothing"), Fails(ErrorCode::not_found));
  EXPECT_THAT(read_file(dir.path()), Fails(ErrorCode::io));
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

/// Makes things that have a name in `dir` and are not regular files, each with a word for it.
std::vector<std::pair<std::string, std::string>> make_oddities(const ScopedTempDir& dir) {
  EXPECT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  std::filesystem::create_directory(dir / "folder");
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  const std::string place = dir / "socket";
  EXPECT_LT(place.size(), sizeof address.sun_path);
  place.copy(address.sun_path, place.size());
  EXPECT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ::close(socket);
  return {{dir / "pipe", "pipe"},
          {dir / "folder", "folder"},
          {place, "socket"},
          {"/dev/zero", "device that never ends"},
          {"/dev/full", "device"}};
}

TEST(FilesTest, OnlyRegularFilesAreReadAppendedToOrReplaced) {
  const ScopedTempDir dir;
  for (const auto& [path, what] : make_oddities(dir)) {
    EXPECT_THAT(read_file(path),
                Fails(::testing::AllOf(HasSubstr(path), HasSubstr("not a regular file"))))
        << what;
    EXPECT_FALSE(append_line(path, "x")) << what;
    EXPECT_THAT(publish_file(path, "x"), Fails(HasSubstr("no regular file"))) << what;
    EXPECT_FALSE(create_file(path, "x", 0600)) << what;
    EXPECT_FALSE(std::filesystem::is_regular_file(path)) << what;
  }
}

TEST(FilesTest, WhatKilledWritersLeftIsRemoved) {
  const ScopedTempDir dir;
  const std::string dead = dir / ".page.html.0123456789abcdef-12.tmp";
  std::vector<std::string> others;
  for (const char* name :
       {".page.html.tmp", ".page.html.0123456789abcdef-.tmp", ".page.html.0123456789abcdeg-1.tmp",
        ".other.html.0123456789abcdef-1.tmp", ".page.html.0123456789abcdef-1x.tmp",
        "page.html.0123456789abcdef-1.tmp", ".page.html.0123456789abcdef.tmp"}) {
    others.push_back(dir / name);
    std::ofstream(others.back()) << "x";
  }
  std::filesystem::create_symlink(others[0], dir / ".page.html.0123456789abcdef-2.tmp");
  others.push_back(dir / ".page.html.0123456789abcdef-2.tmp");
  std::ofstream(dead) << "half";
  OutputFile alive = must(OutputFile::create(dir / "page.html"));
  EXPECT_FALSE(std::filesystem::exists(dead));
  ASSERT_TRUE(publish_file(dir / "page.html", "other"));
  ASSERT_TRUE(alive.write("first")) << "a writer that lives keeps its file";
  EXPECT_TRUE(alive.publish());
  EXPECT_EQ(*read_file(dir / "page.html"), "first");
  for (const std::string& file : others) {
    EXPECT_TRUE(std::filesystem::is_symlink(file) || std::filesystem::exists(file)) << file;
  }
}

TEST(FilesTest, ANewFileIsWholeOrNotThere) {
  const ScopedTempDir dir;
  ASSERT_TRUE(create_file(dir / "key", "secret", 0600));
  EXPECT_EQ(*read_file(dir / "key"), "secret");
  EXPECT_EQ(std::filesystem::status(dir / "key").permissions(), std::filesystem::perms(0600));
  EXPECT_THAT(create_file(dir / "key", "other", 0600).error().message, HasSubstr("File exists"));
  EXPECT_EQ(*read_file(dir / "key"), "secret");
  {
    const FaultyFiles faulty(dir.path().native(), FaultyFiles::Call::write, ENOSPC);
    EXPECT_FALSE(create_file(dir / "full", "x", 0600));
  }
  EXPECT_EQ(list_directory(dir.path()), std::vector<std::string>{"key"});
}

TEST(FilesTest, ANameThatMayBeAKeyIsNotRepeated) {
  const std::string hex = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
  const std::string base64 = "Zm9vYmFyMTIzNDU2Nzg5MGFiY2RlZmdoaWprbG1ub3BxcnN0dXZ3/+==";
  for (const std::string& key :
       {hex, hex + hex, hex + hex + "\n", base64, "./" + hex + hex, hex + hex + hex + hex + hex}) {
    const std::string said = read_file(key).error().message;
    EXPECT_THAT(said, ::testing::Not(HasSubstr("cdef")));
    EXPECT_THAT(said, ::testing::Not(HasSubstr("Zm9v")));
    EXPECT_THAT(said, HasSubstr(concat(key.size(), " bytes that looks like a key")));
  }
  for (const std::string& name :
       {"v1/artifacts/01/" + hex + ".kwa",
        std::string("/models/Llama-3.2-1B-Instruct-0123456789/c"), std::string("none")}) {
    EXPECT_THAT(read_file(name).error().message, HasSubstr(name));
  }
}

TEST(FilesTest, AnArgumentMayBeALinkAndAnOutputMayNot) {
  const ScopedTempDir dir;
  ASSERT_TRUE(publish_file(dir / "file", "content"));
  std::filesystem::create_symlink("file", dir / "link");
  EXPECT_EQ(*read_file(dir / "link"), "content");
  EXPECT_FALSE(publish_file(dir / "link", "other"));
  EXPECT_FALSE(append_line(dir / "link", "more"));
  std::filesystem::create_symlink("new", dir / "dangling");
  EXPECT_FALSE(publish_file(dir / "dangling", "x"));
  EXPECT_FALSE(append_line(dir / "dangling", "x"));
  EXPECT_FALSE(std::filesystem::exists(dir / "new"));
  EXPECT_EQ(*read_file(dir / "file"), "content");
}

TEST(FilesTest, BelowAFolderNothingIsALink) {
  const ScopedTempDir dir;
  ASSERT_TRUE(publish_file(dir / "outside/file", "theirs"));
  ASSERT_TRUE(publish_file(dir / "root/deep/file", "ours"));
  std::filesystem::create_directory_symlink(dir / "root", dir / "way");
  const std::filesystem::path root = dir / "way";
  EXPECT_EQ(*read_file(root / "deep/file", {}, root), "ours") << "the folder itself may be";
  std::filesystem::create_directory_symlink("../outside", dir / "root/out");
  std::filesystem::create_directory_symlink("deep", dir / "root/in");
  std::filesystem::create_symlink("../outside/file", dir / "root/file");
  for (const char* below : {"out/file", "in/file", "file"}) {
    EXPECT_THAT(read_file(root / below, {}, root), Fails(HasSubstr("there is a link in it")))
        << below;
    EXPECT_FALSE(append_line(root / below, "x", {}, root)) << below;
    EXPECT_FALSE(publish_file(root / below, "x", root)) << below;
  }
  EXPECT_FALSE(publish_file(root / "out/new", "x", root));
  EXPECT_FALSE(read_directory(root / "out", root));
  EXPECT_EQ(read_file(root / "deep/none", {}, root).error().code, ErrorCode::not_found);
  EXPECT_EQ(*read_file(dir / "outside/file"), "theirs");
  EXPECT_EQ(list_directory(dir / "outside"), std::vector<std::string>{"file"});
}

TEST(FilesTest, WhatIsTooLongIsNotReadNorMadeSo) {
  const ScopedTempDir dir;
  const FileKind note{"note", 10};
  ASSERT_TRUE(publish_file(dir / "file", "0123456789"));
  EXPECT_EQ(*read_file(dir / "file", note), "0123456789");
  EXPECT_THAT(append_line(dir / "file", "", note),
              Fails(HasSubstr("11 bytes, the most of a note is 10")));
  ASSERT_TRUE(append_line(dir / "file", ""));
  EXPECT_THAT(read_file(dir / "file", note),
              Fails(ErrorCode::corrupt, HasSubstr("11 bytes, the most of a note is 10")));
  std::filesystem::resize_file(dir / "file", std::uintmax_t{1} << 40);
  EXPECT_FALSE(read_file(dir / "file")) << "a hole of a terabyte";
}

TEST(FilesTest, AFileThatDoesNotSayItsLengthIsReadToItsEnd) {
  const std::string read = must(read_file("/proc/self/maps"));
  EXPECT_TRUE(read.ends_with('\n'));
  EXPECT_FALSE(read_file("/proc/self/maps", {"note", 10}));
}

TEST(FilesTest, WhereThereIsNoMemoryItIsNamedForWhat) {
  const ScopedTempDir dir;
  ASSERT_TRUE(publish_file(dir / "file", ""));
  const InputFile file = must(InputFile::open(dir / "file"));
  EXPECT_THAT(file.read(0, std::string().max_size()),
              Fails(HasSubstr((dir / "file").native() + ": no memory for")));
}

TEST(FilesTest, AnOutputThatIsNotPublishedLeavesNothing) {
  const ScopedTempDir dir;
  {
    OutputFile file = must(OutputFile::create(dir / "file"));
    ASSERT_TRUE(file.write("half"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(FilesTest, AllThatLiesBelowAFolderIsListedAndWhatCannotBeReadIsNamed) {
  const ScopedTempDir dir;
  for (const char* name : {"b", "a/x", "a/y/z"}) ASSERT_TRUE(publish_file(dir / name, ""));
  std::filesystem::create_directory_symlink("a", dir / "link");
  const FilesBelow all = files_below(dir.path(), dir.path());
  EXPECT_EQ(all.files, (std::vector<std::filesystem::path>{dir / "a/x", dir / "a/y/z", dir / "b",
                                                           dir / "link"}));
  EXPECT_TRUE(all.unread.empty());
  EXPECT_TRUE(files_below(dir / "none", dir.path()).unread.empty());
  const FaultyFiles faulty((dir / "a").native(), FaultyFiles::Call::opendir, EMFILE);
  const FilesBelow some = files_below(dir.path(), dir.path());
  EXPECT_EQ(some.files, (std::vector<std::filesystem::path>{dir / "b", dir / "link"}));
  ASSERT_EQ(some.unread.size(), 1U);
  EXPECT_EQ(some.unread[0].folder, dir / "a");
  EXPECT_EQ(some.unread[0].error.code, ErrorCode::io);
}

TEST(FilesTest, DirectoryNamesAreSorted) {
  const ScopedTempDir dir;
  for (const char* name : {"c", "a", "b"}) ASSERT_TRUE(publish_file(dir / name, ""));
  EXPECT_EQ(list_directory(dir.path()), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_TRUE(list_directory(dir / "missing").empty());
}

}  // namespace
}  // namespace kernwright
