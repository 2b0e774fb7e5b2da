#include "support/processes/process_exit.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <gtest/gtest.h>
#include <latch>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace kernwright {
namespace {

using namespace std::chrono_literals;
using Late = BeforeExit::Late;

// Represents a library: its handler was registered before, and frees what the work uses.
std::atomic<bool> in_use = false;

void load_library() {
  std::atexit([] { std::_Exit(in_use ? 1 : 0); });
  heed_exit();
}

/// Begins work on another thread, which ends some time after the process has begun to exit.
void work(Late late, std::chrono::milliseconds after) {
  std::latch begun{1};
  std::thread([&begun, late, after] {
    const BeforeExit works(late);
    in_use = static_cast<bool>(works);
    begun.count_down();
    while (!exiting()) std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_for(after);
    in_use = false;
  }).detach();
  begun.wait();
}

[[noreturn]] void exit_with_work(Late late, std::chrono::milliseconds after) {
  load_library();
  std::fputs("unflushed", stdout);
  work(late, after);
  std::exit(2);
}

[[noreturn]] void exit_in_own_work() {
  load_library();
  const BeforeExit works(Late::ends);
  std::exit(2);
}

[[noreturn]] void exit_and_begin() {
  std::atexit([] {
    const BeforeExit late;
    std::_Exit(late || !exiting() ? 1 : 0);
  });
  heed_exit();
  const BeforeExit early;
  std::exit(early && !exiting() ? 2 : 3);
}

[[noreturn]] void exit_forked() {
  std::atexit([] { std::_Exit(7); });  // is not reached if the exit gives up on waiting
  heed_exit();
  work(Late::ends, 1h);
  const pid_t child = ::fork();
  if (child == 0) std::exit(0);  // the thread that works is the parent's
  int status = 0;
  ::waitpid(child, &status, 0);
  std::_Exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

/// Exits while another thread loads a library, whose handlers are in front of ours until it has.
[[noreturn]] void exit_during_load() {
  load_library();
  {
    const BeforeExit used;
  }
  std::latch begun{1};
  std::thread([&begun] {
    const BeforeExit loads(Late::loads);
    in_use = true;
    std::atexit([] { std::_Exit(in_use ? 1 : 0); });
    begun.count_down();
    std::this_thread::sleep_for(50ms);
    in_use = false;
    heed_exit();
  }).detach();
  begun.wait();
  std::exit(2);
}

/// A thread that lingers is there while the exit goes on, and comes back for who waits for it.
[[noreturn]] void exit_with_guest() {
  static std::atomic<bool> back{false};
  static std::thread guest;
  std::atexit([] {
    linger_while_exiting();  // not the thread that exits
    std::this_thread::sleep_for(50ms);
    const bool early = back;
    guest.join();
    std::_Exit(!early && back ? 0 : 1);
  });
  heed_exit();
  linger_while_exiting();
  guest = std::thread([] {
    while (!exiting()) std::this_thread::sleep_for(1ms);
    linger_while_exiting();
    back = true;
  });
  std::exit(2);
}

class BeforeExitDeathTest : public testing::Test {
 protected:
  BeforeExitDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(BeforeExitDeathTest, TheExitWaitsForWhatHasBegun) {
  EXPECT_EXIT(exit_with_work(Late::goes_on, 50ms), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(exit_with_work(Late::ends, 50ms), testing::ExitedWithCode(0), "");
}

TEST_F(BeforeExitDeathTest, TheExitDoesNotWaitForEver) {
  EXPECT_EXIT(exit_with_work(Late::goes_on, 1h), testing::ExitedWithCode(1), "");
}

TEST_F(BeforeExitDeathTest, NoLibraryIsTakenDownBeneathWhatIsWithinIt) {
  // Its own status, which the handler of the library would change, and what it wrote.
  const auto exits = [] {
    ::dup2(STDERR_FILENO, STDOUT_FILENO);
    exit_with_work(Late::ends, 1h);
  };
  EXPECT_EXIT(exits(), testing::ExitedWithCode(2), "unflushed");
}

TEST_F(BeforeExitDeathTest, NoLibraryIsTakenDownWhileItIsLoaded) {
  EXPECT_EXIT(exit_during_load(), testing::ExitedWithCode(0), "");
}

TEST_F(BeforeExitDeathTest, WorkThatExitsIsNotWaitedFor) {
  EXPECT_EXIT(exit_in_own_work(), testing::ExitedWithCode(0), "");
}

TEST_F(BeforeExitDeathTest, NothingBeginsWhileTheProcessExits) {
  EXPECT_EXIT(exit_and_begin(), testing::ExitedWithCode(0), "");
}

TEST_F(BeforeExitDeathTest, OtherThreadsLinger) {
  EXPECT_EXIT(exit_with_guest(), testing::ExitedWithCode(0), "");
}

TEST_F(BeforeExitDeathTest, AForkedProcessWaitsForNoThreadOfItsParent) {
  EXPECT_EXIT(exit_forked(), testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace kernwright
