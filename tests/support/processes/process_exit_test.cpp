#include "support/processes/process_exit.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <gtest/gtest.h>
#include <latch>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace kernwright {
namespace {

using namespace std::chrono_literals;
using Wait = BeforeExit::Wait;

// Represents a library: its handler was registered before, and frees what the work uses.
std::atomic<bool> in_use = false;

void load_library() {
  std::atexit([] { std::_Exit(in_use ? 1 : 0); });
  heed_exit();
}

/// Begins work on another thread, which ends some time after the process has begun to exit.
void work(Wait wait, std::chrono::milliseconds after) {
  std::latch begun{1};
  std::thread([&begun, wait, after] {
    const BeforeExit works(wait);
    in_use = static_cast<bool>(works);
    begun.count_down();
    while (!exiting()) std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_for(after);
    in_use = false;
  }).detach();
  begun.wait();
}

[[noreturn]] void exit_with_work(Wait wait, std::chrono::milliseconds after) {
  load_library();
  work(wait, after);
  std::exit(2);
}

[[noreturn]] void exit_in_own_work() {
  load_library();
  const BeforeExit works(Wait::patiently);
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
  heed_exit();
  work(Wait::patiently, 1h);
  const pid_t child = ::fork();
  if (child == 0) std::exit(0);  // the thread that works is the parent's
  int status = 0;
  ::waitpid(child, &status, 0);
  std::_Exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

class BeforeExitDeathTest : public testing::Test {
 protected:
  BeforeExitDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(BeforeExitDeathTest, TheExitWaitsForWhatHasBegun) {
  EXPECT_EXIT(exit_with_work(Wait::briefly, 50ms), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(exit_with_work(Wait::patiently, 2s), testing::ExitedWithCode(0), "");
}

TEST_F(BeforeExitDeathTest, TheExitDoesNotWaitForEver) {
  EXPECT_EXIT(exit_with_work(Wait::briefly, 1h), testing::ExitedWithCode(1), "");
}

TEST_F(BeforeExitDeathTest, WorkThatExitsIsNotWaitedFor) {
  EXPECT_EXIT(exit_in_own_work(), testing::ExitedWithCode(0), "");
}

TEST_F(BeforeExitDeathTest, NothingBeginsWhileTheProcessExits) {
  EXPECT_EXIT(exit_and_begin(), testing::ExitedWithCode(0), "");
}

TEST_F(BeforeExitDeathTest, AForkedProcessWaitsForNoThreadOfItsParent) {
  EXPECT_EXIT(exit_forked(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace kernwright
