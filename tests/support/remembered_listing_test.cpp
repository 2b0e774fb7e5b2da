#include "support/remembered_listing.h"

#include <chrono>
#include <filesystem>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "support/files.h"
#include "tests/support/faulty_files.h"
#include "tests/temp_dir.h"

namespace kernwright {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

class RememberedListingsTest : public ::testing::Test {
 protected:
  void put(const std::string& name) const { ASSERT_TRUE(publish_file(dir_ / name, "x")); }
  void age() const {
    fs::last_write_time(dir_.path(), fs::file_time_type::clock::now() - std::chrono::hours(1));
  }

  ScopedTempDir dir_;
  RememberedListings listings_;
};

TEST_F(RememberedListingsTest, WhatHasNotChangedIsNotReadAgain) {
  put("a");
  age();
  const RememberedListings::Names first = listings_.names(dir_.path());
  EXPECT_EQ(*first, Names{"a"});
  EXPECT_EQ(listings_.names(dir_.path()), first);
}

TEST_F(RememberedListingsTest, AChangeIsSeen) {
  put("a");
  age();
  EXPECT_EQ(listings_.names(dir_.path())->size(), 1U);
  put("b");
  EXPECT_EQ(listings_.names(dir_.path())->size(), 2U);
}

TEST_F(RememberedListingsTest, ChangesOfOneTickAreSeen) {
  put("a");
  EXPECT_EQ(listings_.names(dir_.path())->size(), 1U);
  const fs::file_time_type before = fs::last_write_time(dir_.path());
  put("b");
  fs::last_write_time(dir_.path(), before);
  EXPECT_EQ(listings_.names(dir_.path())->size(), 2U);
}

TEST_F(RememberedListingsTest, WhatCannotBeReadHasNoNames) {
  EXPECT_TRUE(listings_.names(dir_ / "none")->empty());
  put("a");
  age();
  EXPECT_EQ(listings_.names(dir_.path())->size(), 1U);
  const FaultyFiles faulty(dir_.path().native(), FaultyFiles::Call::opendir, ESTALE);
  EXPECT_TRUE(listings_.names(dir_.path())->empty());
}

}  // namespace
}  // namespace kernwright
