#include "service/serve/lookup_counters.h"

#include <gtest/gtest.h>
#include <thread>
#include <vector>

namespace kernwright {
namespace {

TEST(LookupCountersTest, NothingIsMissedOfWhatManyThreadsCount) {
  constexpr int kThreads = 8;
  constexpr int kTimes = 1'000;
  LookupCounters counters;
  EXPECT_TRUE(counters.read().empty());
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&counters] {
      for (int time = 0; time < kTimes; ++time) {
        counters.add(Match::exact, MissReason::none);
        counters.add(Match::predicted, MissReason::absent);
        counters.read();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::vector<LookupCount> read = counters.read();
  ASSERT_EQ(read.size(), 2U) << "what never occurred is left out";
  for (const LookupCount& one : read) {
    EXPECT_EQ(one.count, static_cast<std::uint64_t>(kThreads) * kTimes);
    EXPECT_EQ(one.reason, one.match == Match::exact ? MissReason::none : MissReason::absent);
  }
  EXPECT_NE(read[0].match, read[1].match);
}

}  // namespace
}  // namespace kernwright
