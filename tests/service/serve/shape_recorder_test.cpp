#include "service/serve/shape_recorder.h"

#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <vector>

#include "tests/cache/samples.h"
#include "tests/temp_dir.h"

namespace kernwright {
namespace {

class ShapeRecorderTest : public ::testing::Test {
 protected:
  LoggedLookup asked(int m, Match match = Match::exact) const {
    return {sample_key(m), match, MissReason::none, "2026-11-26T10:00:00Z"};
  }
  ScopedTempDir dir_;
  LookupLog log_{dir_ / "shapes.jsonl"};
};

TEST_F(ShapeRecorderTest, AProblemIsThereAtOnceAndItsCountAtTheEnd) {
  {
    ShapeRecorder recorder(log_);
    ASSERT_TRUE(recorder.add(asked(1)));
    ASSERT_TRUE(recorder.add(asked(1)));
    ASSERT_TRUE(recorder.add(asked(1, Match::recheck)));
    EXPECT_EQ(log_.counts()->at(0).count, 1);
    ASSERT_TRUE(recorder.flush());
    EXPECT_EQ(log_.counts()->at(0).count, 3);
    EXPECT_EQ(log_.counts()->at(0).match, Match::recheck) << "the latest answer";
    ASSERT_TRUE(recorder.add(asked(1)));
  }
  EXPECT_EQ(log_.counts()->at(0).count, 4) << "what is left is written when it ends";
}

TEST_F(ShapeRecorderTest, ThreadsAndProcessesMayShareAFile) {
  constexpr int kThreads = 4;
  constexpr int kTimes = 200;
  {
    ShapeRecorder one(log_);
    ShapeRecorder other(log_);  // as in another process
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        for (int time = 0; time < kTimes; ++time) {
          EXPECT_TRUE((i % 2 == 0 ? one : other).add(asked(time % 3)));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  std::int64_t sum = 0;
  const auto counts = log_.counts();
  ASSERT_TRUE(counts) << counts.error().message;
  for (const LoggedLookup& lookup : *counts) sum += lookup.count;
  EXPECT_EQ(counts->size(), 3U);
  EXPECT_EQ(sum, kThreads * kTimes);
}

TEST(ShapeRecorderWithoutAFileTest, SaysSo) {
  ShapeRecorder recorder(LookupLog("/dev/null/shapes.jsonl"));
  EXPECT_FALSE(recorder.add({sample_key(1), Match::none, MissReason::absent, ""}));
}

}  // namespace
}  // namespace kernwright
