#include "support/processes/threads.h"

#include <atomic>
#include <gtest/gtest.h>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/child.h"

namespace kernwright {
namespace {

TEST(ThreadTest, EndsBeforeItsOwnerDoes) {
  std::atomic<bool> ran{false};
  {
    const Result<Thread> thread = Thread::start([&] { ran = true; });
    ASSERT_TRUE(thread) << thread.error().message;
  }
  EXPECT_TRUE(ran);
}

TEST(ThreadTest, WhereNoneCanBeStartedTheErrorNamesTheLimit) {
  if (!forks_start_threads()) GTEST_SKIP() << kThreadsStarted;
  const int status = in_child([] {
    if (!limit_threads(1)) return 77;
    const Result<Thread> thread = Thread::start([] {});
    if (thread || thread.error().code != ErrorCode::unavailable) return 1;
    const std::string& why = thread.error().message;
    return why.find("user 54321 may have 1 processes and threads") != std::string::npos ||
                   ::getuid() != 54321
               ? 0
               : 2;
  });
  if (status == 77) GTEST_SKIP() << "this process cannot be limited";
  EXPECT_EQ(status, 0);
}

TEST(ThreadTest, AForkedProcessStartsNone) {
  if (!forks_start_threads()) GTEST_SKIP() << kThreadsStarted;
  ASSERT_TRUE(check_not_forked());
  ASSERT_TRUE(Thread::start([] {}));
  ASSERT_TRUE(check_not_forked());
  EXPECT_EQ(in_child([] {
              const Result<Thread> thread = Thread::start([] {});
              return !check_not_forked() && !thread &&
                             thread.error().message.find("was forked from process") !=
                                 std::string::npos
                         ? 0
                         : 1;
            }),
            0);
}

TEST(ParallelForTest, CallsEachOnce) {
  std::vector<std::atomic<int>> calls(1000);
  parallel_for(calls.size(), [&](std::size_t i) { ++calls[i]; });
  for (const auto& count : calls) EXPECT_EQ(count, 1);
  parallel_for(0, [](std::size_t) { FAIL(); });
}

TEST(ParallelForTest, ACallWithinACallStartsNoThreads) {
  std::vector<std::atomic<int>> calls(100);
  parallel_for(10, [&](std::size_t i) {
    const std::thread::id outer = std::this_thread::get_id();
    parallel_for(10, [&](std::size_t j) {
      EXPECT_EQ(std::this_thread::get_id(), outer);
      ++calls[10 * i + j];
    });
  });
  for (const auto& count : calls) EXPECT_EQ(count, 1);
}

TEST(ParallelForTest, AnExceptionArrives) {
  EXPECT_THROW(parallel_for(100,
                            [](std::size_t i) {
                              if (i == 50) throw std::runtime_error("at 50");
                            }),
               std::runtime_error);
}

TEST(ParallelForTest, IsDoneWithoutOtherThreadsToo) {
  const int status = in_child([] {
    if (!limit_threads(1)) return 77;
    std::size_t sum = 0;
    parallel_for(10, [&](std::size_t i) { sum += i; });
    return sum == 45 ? 0 : 1;
  });
  if (status == 77) GTEST_SKIP() << "this process cannot be limited";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace kernwright
