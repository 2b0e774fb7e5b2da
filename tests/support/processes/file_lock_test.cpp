#include "support/processes/file_lock.h"

#include <cerrno>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "support/file_descriptor.h"
#include "tests/temp_dir.h"

namespace {
thread_local int interruptions = 0;
}  // namespace

/// The system's, but for calls that are said to be interrupted.
extern "C" int flock(int file, int operation) noexcept {
  if (interruptions == 0) return static_cast<int>(::syscall(SYS_flock, file, operation));
  --interruptions;
  errno = EINTR;
  return -1;
}

namespace kernwright {
namespace {

class FileLockTest : public testing::Test {
 protected:
  FileDescriptor open() const {
    return FileDescriptor(
        ::open((dir_.path() / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  }
  ScopedTempDir dir_;
};

TEST_F(FileLockTest, IsTakenByOneAtATime) {
  const FileDescriptor other = open();
  {
    const FileDescriptor one = open();
    EXPECT_EQ(try_lock(one.get()), LockAttempt::taken);
    EXPECT_EQ(try_lock(other.get()), LockAttempt::busy);
  }
  EXPECT_EQ(try_lock(other.get()), LockAttempt::taken);
}

TEST_F(FileLockTest, IsTriedAgainWhenItIsInterruptedButNotForEver) {
  const FileDescriptor file = open();
  interruptions = 3;
  EXPECT_EQ(try_lock(file.get()), LockAttempt::taken);
  interruptions = 1'000'000;
  EXPECT_EQ(try_lock(file.get()), LockAttempt::failed);
  EXPECT_EQ(errno, EINTR);
  interruptions = 0;
}

TEST_F(FileLockTest, SaysWhyItFailed) {
  EXPECT_EQ(try_lock(-1), LockAttempt::failed);
  EXPECT_EQ(errno, EBADF);
}

}  // namespace
}  // namespace kernwright
