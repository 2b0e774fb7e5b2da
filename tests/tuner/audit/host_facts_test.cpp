#include "tuner/audit/host_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include "support/files.h"
#include "tests/temp_dir.h"

namespace kernwright {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(HostFactsTest, MappedFilesAreNamedOnce) {
  EXPECT_THAT(
      mapped_files("7f00-7f10 r--p 00000000 08:01 42                 /usr/lib/libcupti.so.13\n"
                   "7f10-7f20 r-xp 00010000 08:01 42                 /usr/lib/libcupti.so.13\n"
                   "7f20-7f30 rw-p 00000000 00:00 0 \n"
                   "7ffe-7fff rw-p 00000000 00:00 0                  [stack]\n"
                   "7f40-7f50 r-xp 00000000 08:01 43                 /opt/a b/lib.so (deleted)"),
      ElementsAre("/opt/a b/lib.so (deleted)", "/usr/lib/libcupti.so.13"));
  EXPECT_TRUE(mapped_files("").empty());
}

TEST(HostFactsTest, ThisProcessHasFilesAndVariables) {
  EXPECT_THAT(HostReader().mapped_files(), Contains(HasSubstr("libc.so")));
  ::setenv("KERNWRIGHT_HOST_FACTS_TEST", "a=b", 1);
  EXPECT_EQ(read_environment()["KERNWRIGHT_HOST_FACTS_TEST"], "a=b");
  ::unsetenv("KERNWRIGHT_HOST_FACTS_TEST");
}

class HostReaderTest : public ::testing::Test {
 protected:
  void write(const char* path, std::string_view text) {
    ASSERT_TRUE(publish_file(dir_ / path, text));
  }
  HostLoad load() { return reader_.load(std::chrono::milliseconds(1)); }

  ScopedTempDir dir_;
  HostReader reader_{dir_.path()};
};

TEST_F(HostReaderTest, SharesAreOfTheTimeSinceTheLastLook) {
  write("proc/thread-self/schedstat", "5000 1000000000 17\n");
  write("proc/loadavg", "0.52 0.58 0.59 23/1204 4711\n");
  write("sys/fs/cgroup/cpu.stat", "usage_usec 5\nnr_throttled 3\nthrottled_usec 1500000\n");
  HostLoad first = load();
  EXPECT_FALSE(first.delayed_share);
  EXPECT_FALSE(first.throttled_seconds);
  EXPECT_EQ(first.runnable, 23);
  EXPECT_GT(first.cores, 0);

  write("proc/thread-self/schedstat", "6000 3600001000000000 18\n");  // an hour of waiting
  write("sys/fs/cgroup/cpu.stat", "usage_usec 5\nnr_throttled 4\nthrottled_usec 1750000\n");
  const HostLoad second = load();
  ASSERT_TRUE(second.delayed_share);
  EXPECT_GT(*second.delayed_share, 1);
  ASSERT_TRUE(second.throttled_seconds);
  EXPECT_DOUBLE_EQ(*second.throttled_seconds, 0.25);
}

TEST_F(HostReaderTest, ReadsTheFirstVersionOfControlGroups) {
  write("sys/fs/cgroup/cpu/cpu.stat", "nr_periods 9\nnr_throttled 3\nthrottled_time 1000000000\n");
  load();
  write("sys/fs/cgroup/cpu/cpu.stat", "nr_periods 9\nnr_throttled 3\nthrottled_time 3000000000\n");
  EXPECT_DOUBLE_EQ(*load().throttled_seconds, 2);
}

TEST_F(HostReaderTest, WhatIsMissingOrBrokenIsNotKnown) {
  load();
  HostLoad nothing = load();
  EXPECT_FALSE(nothing.delayed_share);
  EXPECT_FALSE(nothing.throttled_seconds);
  EXPECT_FALSE(nothing.runnable);
  write("proc/thread-self/schedstat", "zero one\n");
  write("proc/loadavg", "0.52\n");
  write("sys/fs/cgroup/cpu.stat", "throttled_usec_total 5\n");
  load();
  nothing = load();
  EXPECT_FALSE(nothing.delayed_share);
  EXPECT_FALSE(nothing.throttled_seconds);
  EXPECT_FALSE(nothing.runnable);
}

}  // namespace
}  // namespace kernwright
