#include "service/tune/background_tuner.h"

#include <atomic>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

namespace kernwright {
namespace {

Problem problem(std::int64_t n) { return Problem::make("vector_add", {{"n", n}}); }

TEST(BackgroundTunerTest, TunesEachProblemOnceInTheOrderAskedFor) {
  std::vector<std::int64_t> tuned;
  BackgroundTuner tuner(100, [&](const Problem& asked, const std::atomic<bool>&) {
    tuned.push_back(asked.dims()[0].second);
    return 1.0;
  });
  for (const std::int64_t n : {3, 1, 3, 2, 1}) EXPECT_TRUE(tuner.ask(problem(n)));
  tuner.wait();
  EXPECT_EQ(tuned, (std::vector<std::int64_t>{3, 1, 2}));
}

TEST(BackgroundTunerTest, StopsWhenTheBudgetIsUsedUp) {
  std::atomic<int> tuned{0};
  BackgroundTuner tuner(10, [&](const Problem&, const std::atomic<bool>&) {
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

TEST(BackgroundTunerTest, AfterItsEndNothingIsTaken) {
  std::atomic<int> tuned{0};
  BackgroundTuner tuner(100, [&](const Problem&, const std::atomic<bool>&) {
    ++tuned;
    return 1.0;
  });
  tuner.end();
  EXPECT_TRUE(tuner.ask(problem(1)));
  tuner.wait();
  EXPECT_EQ(tuned, 0);
}

TEST(BackgroundTunerTest, ItsEndStopsWhatHasBegunAndDropsTheRest) {
  std::atomic<int> tuned{0};
  {
    BackgroundTuner tuner(100, [&](const Problem&, const std::atomic<bool>& stop) {
      ++tuned;
      while (!stop) std::this_thread::yield();
      return 1.0;
    });
    for (int n = 1; n <= 10; ++n) EXPECT_TRUE(tuner.ask(problem(n)));
    while (tuned == 0) std::this_thread::yield();
  }
  EXPECT_EQ(tuned, 1);
}

}  // namespace
}  // namespace kernwright
