#include "support/processes/find_tool.h"

#include <gtest/gtest.h>

#include "support/files.h"
#include "tests/temp_dir.h"

namespace kernwright {
namespace {

namespace fs = std::filesystem;

TEST(FindToolTest, LiesBesideTheRunningProgram) {
  const auto found = find_tool({});
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(*found, fs::read_symlink("/proc/self/exe").parent_path() / "kernwright");
}

TEST(FindToolTest, AGivenPathIsTakenOrNamed) {
  const ScopedTempDir directory;
  const fs::path path = directory / "mine";
  const auto missing = find_tool(path);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::unavailable);
  EXPECT_NE(missing.error().message.find(path.native()), std::string::npos);
  ASSERT_TRUE(publish_file(path, "#!/bin/sh\n"));
  EXPECT_FALSE(find_tool(path)) << "it is no program yet";
  fs::permissions(path, fs::perms::owner_all);
  EXPECT_EQ(find_tool(path).value(), path);
}

}  // namespace
}  // namespace kernwright
