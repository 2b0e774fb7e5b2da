#include "tuner/session/gpu_lock.h"

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <optional>
#include <signal.h>
#include <string>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "support/text.h"
#include "tests/cache/child_process.h"
#include "tests/results.h"
#include "tests/temp_dir.h"

namespace kernwright {
namespace {

/// Locks below a folder of its own.
class GpuLockTest : public ::testing::Test {
 protected:
  GpuLockTest() {
    const char* before = std::getenv("TMPDIR");
    if (before != nullptr) before_ = before;
    ::setenv("TMPDIR", dir_.path().c_str(), 1);
  }
  ~GpuLockTest() override {
    before_ ? ::setenv("TMPDIR", before_->c_str(), 1) : ::unsetenv("TMPDIR");
  }

  /// A process that takes the lock, says so with a byte and keeps it until it is killed.
  pid_t start_holder() {
    int pipe[2];
    EXPECT_EQ(::pipe(pipe), 0);
    const pid_t child = start_child([&] {
      const Result<GpuLock> lock = GpuLock::acquire("GPU-1");
      const char said = lock ? 'y' : 'n';
      if (::write(pipe[1], &said, 1) != 1) return 1;
      for (;;) ::pause();
    });
    char said = 0;
    EXPECT_EQ(::read(pipe[0], &said, 1), 1);
    EXPECT_EQ(said, 'y');
    ::close(pipe[0]);
    ::close(pipe[1]);
    return child;
  }

  ScopedTempDir dir_;
  std::optional<std::string> before_;
};

TEST_F(GpuLockTest, IsFreeAgainWithItsOwner) {
  for (int i = 0; i < 3; ++i) {
    const GpuLock lock =
        must(GpuLock::acquire("GPU-1", [](std::string_view line) { FAIL() << line; }));
  }
  EXPECT_TRUE(std::filesystem::exists(dir_ / "kernwright-GPU-1.lock"));
}

TEST_F(GpuLockTest, EveryGpuHasItsOwn) {
  const Result<GpuLock> one = GpuLock::acquire("GPU-1");
  const Result<GpuLock> other =
      GpuLock::acquire("GPU-2", [](std::string_view line) { FAIL() << line; });
  EXPECT_TRUE(one && other);
}

TEST_F(GpuLockTest, AnotherProcessIsWaitedForAndNamed) {
  const pid_t holder = start_holder();
  std::atomic<bool> waits = false;
  std::string said;
  std::optional<GpuLock> lock;
  std::thread waiter([&] {
    Result<GpuLock> got = GpuLock::acquire("GPU-1", [&](std::string_view line) {
      said = line;
      waits = true;
    });
    ASSERT_TRUE(got) << got.error().message;
    lock = std::move(*got);
  });
  while (!waits) std::this_thread::yield();
  EXPECT_EQ(::kill(holder, SIGKILL), 0);  // the lock ends with its holder, however that ends
  waiter.join();
  wait_for(holder);
  EXPECT_TRUE(lock);
  EXPECT_EQ(said, concat("waiting for GPU GPU-1: process ", holder, " measures on it"));
}

TEST_F(GpuLockTest, WhoIsToldToStopWaitsNoLonger) {
  const GpuLock held = must(GpuLock::acquire("GPU-1"));
  EXPECT_THAT(GpuLock::acquire("GPU-1", {}, [] { return true; }),
              Fails(ErrorCode::unavailable, "no longer waiting for GPU GPU-1"));
}

TEST_F(GpuLockTest, IsForEveryUser) {
  ASSERT_TRUE(GpuLock::acquire("GPU-1"));
  struct stat status{};
  ASSERT_EQ(::stat(GpuLock::path("GPU-1")->c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0666U);
}

TEST_F(GpuLockTest, WithoutAFolderItIsAnError) {
  ::setenv("TMPDIR", (dir_ / "gone").c_str(), 1);
  EXPECT_THAT(GpuLock::acquire("GPU-1"), Fails(ErrorCode::io));
}

}  // namespace
}  // namespace kernwright
