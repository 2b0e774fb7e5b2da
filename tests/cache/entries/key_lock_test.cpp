#include "cache/entries/key_lock.h"

#include <atomic>
#include <csignal>
#include <filesystem>
#include <gtest/gtest.h>
#include <optional>
#include <sched.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "tests/cache/child_process.h"
#include "tests/temp_dir.h"

namespace kernwright {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

class KeyLockTest : public ::testing::Test {
 protected:
  KeyLock acquire(std::string_view name, milliseconds patience = milliseconds(20)) const {
    return KeyLock::acquire(dir_.path(), name, patience);
  }
  ScopedTempDir dir_;
};

TEST_F(KeyLockTest, OneHasItAndTheOthersGoOnAfterTheirPatience) {
  std::optional<KeyLock> first(acquire("a"));
  EXPECT_TRUE(first->held());
  const Clock::time_point start = Clock::now();
  EXPECT_FALSE(acquire("a").held());
  EXPECT_GE(Clock::now() - start, milliseconds(20));
  EXPECT_TRUE(acquire("b").held()) << "another key";
  first.reset();
  EXPECT_TRUE(acquire("a").held());
}

// To wait would take longer than ctest gives a test.
TEST_F(KeyLockTest, WhoIsStoppedWaitsNoLonger) {
  const KeyLock first = acquire("a");
  int looks = 0;
  EXPECT_FALSE(KeyLock::acquire(dir_.path(), "a", std::chrono::hours(24), [&] {
                 return ++looks == 3;
               }).held());
}

TEST_F(KeyLockTest, LeavesNoFile) {
  {
    const KeyLock lock = acquire("a");
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir_ / "v1" / "locks"));
}

// Waiting would take longer than ctest allows a test.
TEST_F(KeyLockTest, WhereNoFileCanBeMadeNobodyWaits) {
  EXPECT_FALSE(KeyLock::acquire("/dev/null/cache", "a", std::chrono::hours(24)).held());
}

TEST_F(KeyLockTest, ItEndsWithAHolderThatIsKilled) {
  int told[2];
  ASSERT_EQ(::pipe(told), 0);
  const pid_t child = start_child([&] {
    const KeyLock lock = acquire("a");
    static_cast<void>(::write(told[1], lock.held() ? "y" : "n", 1) == 1);
    for (;;) ::pause();
    return 0;
  });
  ::close(told[1]);
  char held = 0;
  EXPECT_EQ(::read(told[0], &held, 1), 1);
  ::close(told[0]);
  EXPECT_EQ(held, 'y');
  EXPECT_FALSE(acquire("a", milliseconds(0)).held());
  ::kill(child, SIGKILL);
  EXPECT_EQ(wait_for(child), -1);
  EXPECT_TRUE(acquire("a", milliseconds(600'000)).held());
}

TEST_F(KeyLockTest, ProcessesOfDifferentPidNamespacesExcludeEachOther) {
  constexpr int kNoNamespace = 77;
  const auto in_namespace = [](const auto& body) {
    return start_child([&body]() -> int {
      const int flags = ::geteuid() == 0 ? CLONE_NEWPID : CLONE_NEWPID | CLONE_NEWUSER;
      if (::unshare(flags) != 0) return kNoNamespace;
      return in_child(body);  // process 1 of the namespace
    });
  };
  int ready[2];
  int tried[2];
  ASSERT_EQ(::pipe(ready), 0);
  ASSERT_EQ(::pipe(tried), 0);
  const pid_t holder = in_namespace([&] {
    const KeyLock lock = acquire("a");
    static_cast<void>(::write(ready[1], "x", 1) == 1);
    char byte = 0;
    ::close(tried[1]);
    static_cast<void>(::read(tried[0], &byte, 1) == 1);  // or the waiter is gone
    return lock.held() ? 0 : 1;
  });
  char byte = 0;
  ::close(ready[1]);
  if (::read(ready[0], &byte, 1) != 1) {
    wait_for(holder);
    ::close(ready[0]);
    ::close(tried[0]);
    ::close(tried[1]);
    GTEST_SKIP() << "no PID namespace can be made here";
  }
  const pid_t waiter = in_namespace([&] {
    if (acquire("a", milliseconds(0)).held()) return 1;
    static_cast<void>(::write(tried[1], "x", 1) == 1);
    return acquire("a", milliseconds(600'000)).held() ? 0 : 2;
  });
  ::close(tried[1]);
  EXPECT_EQ(wait_for(waiter), 0);
  EXPECT_EQ(wait_for(holder), 0);
  ::close(ready[0]);
  ::close(tried[0]);
}

TEST_F(KeyLockTest, TwoNeverHaveItAtOnce) {
  std::atomic<int> inside{0};
  std::atomic<int> most{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int turn = 0; turn < 50; ++turn) {
        const KeyLock lock = acquire("a", milliseconds(600'000));
        ASSERT_TRUE(lock.held());
        const int now = ++inside;
        if (now > most) most = now;
        --inside;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(most, 1);
}

}  // namespace
}  // namespace kernwright
