#include "service/tune/background_queue.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

#include "support/processes/process_exit.h"

namespace kernwright {
namespace {

Problem problem(std::int64_t n) { return Problem::make("vector_add", {{"n", n}}); }

TEST(BackgroundQueueTest, TunesEachProblemOnceInTheOrderAskedFor) {
  std::vector<std::int64_t> tuned;
  BackgroundQueue tuner(100, 1, [&](const Problem& asked, const std::atomic<bool>&) {
    tuned.push_back(asked.dims()[0].second);
    return 1.0;
  });
  for (const std::int64_t n : {3, 1, 3, 2, 1}) EXPECT_TRUE(tuner.ask(problem(n)));
  tuner.wait();
  EXPECT_EQ(tuned, (std::vector<std::int64_t>{3, 1, 2}));
}

TEST(BackgroundQueueTest, StopsWhenTheBudgetIsUsedUp) {
  std::atomic<int> tuned{0};
  BackgroundQueue tuner(10, 1, [&](const Problem&, const std::atomic<bool>&) {
    ++tuned;
    return 4.0;
  });
  for (int n = 1; n <= 10; ++n) EXPECT_TRUE(tuner.ask(problem(n)));
  tuner.wait();
  EXPECT_EQ(tuned, 3);
  EXPECT_TRUE(tuner.ask(problem(11)));
  tuner.wait();
  EXPECT_EQ(tuned, 3);
}

TEST(BackgroundQueueTest, AfterItsEndNothingIsTaken) {
  std::atomic<int> tuned{0};
  BackgroundQueue tuner(100, 1, [&](const Problem&, const std::atomic<bool>&) {
    ++tuned;
    return 1.0;
  });
  tuner.end();
  EXPECT_TRUE(tuner.ask(problem(1)));
  tuner.wait();
  EXPECT_EQ(tuned, 0);
}

TEST(BackgroundQueueTest, ItsEndStopsWhatHasBegunAndDropsTheRest) {
  std::atomic<int> tuned{0};
  {
    BackgroundQueue tuner(100, 1, [&](const Problem&, const std::atomic<bool>& stop) {
      ++tuned;
      while (!stop) std::this_thread::yield();
      return 1.0;
    });
    for (int n = 1; n <= 10; ++n) EXPECT_TRUE(tuner.ask(problem(n)));
    while (tuned == 0) std::this_thread::yield();
  }
  EXPECT_EQ(tuned, 1);
}

TEST(BackgroundQueueTest, AsManyProblemsAsItHasThreadsAreWorkedOnAtATime) {
  std::atomic<int> begun{0};
  BackgroundQueue queue(100, 3, [&](const Problem&, const std::atomic<bool>& stop) {
    ++begun;
    while (begun < 3 && !stop) std::this_thread::yield();
    return 1.0;
  });
  for (int n = 1; n <= 7; ++n) EXPECT_TRUE(queue.ask(problem(n)));
  queue.wait();
  EXPECT_EQ(begun, 7);
}

[[noreturn]] void exit_while_it_tunes() {
  static std::atomic<int> tuned{0};
  std::atexit([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    std::_Exit(tuned == 1 ? 0 : 1);
  });
  auto& tuner = *new BackgroundQueue(100, 1, [](const Problem&, const std::atomic<bool>&) {
    ++tuned;
    while (!exiting()) std::this_thread::yield();
    return 1.0;
  });
  for (int n = 1; n <= 10; ++n) static_cast<void>(tuner.ask(problem(n)));
  while (tuned == 0) std::this_thread::yield();
  std::exit(2);
}

TEST(BackgroundQueueDeathTest, TheProcessesExitDropsTheRest) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exit_while_it_tunes(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace kernwright
