#include "service/serve/hot_map.h"

#include <array>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <vector>

namespace kernwright {
namespace {

/// Addresses that represent kernels: the map never looks at what they point to.
class Kernels {
 public:
  const LoadedKernel* at(std::size_t i) const {
    return reinterpret_cast<const LoadedKernel*>(&places_[i]);
  }
  bool contains(const LoadedKernel* kernel) const {
    const auto* place = reinterpret_cast<const char*>(kernel);
    return place >= places_.data() && place < places_.data() + places_.size();
  }

 private:
  std::array<char, 64> places_{};
};

Problem numbered(std::int64_t n) {
  return Problem::make("vector_add", {{"n", n}}, {{"dtype", "bf16"}});
}

TEST(HotMapTest, WhatWasPublishedIsFoundUnderEverySpelling) {
  const Kernels kernels;
  HotMap map;
  const Problem written = Problem::make("vector_add", {{"n", 1}}, {{"out", "bf16"}});
  EXPECT_EQ(map.find(numbered(1)), nullptr);
  map.alias(written, numbered(1));
  EXPECT_EQ(map.find(written), nullptr) << "nothing is published yet";
  map.publish(numbered(1), kernels.at(0));
  EXPECT_EQ(map.find(numbered(1)), kernels.at(0));
  EXPECT_EQ(map.find(written), kernels.at(0));
  EXPECT_EQ(map.find(numbered(2)), nullptr);
  map.publish(numbered(1), kernels.at(1));
  EXPECT_EQ(map.find(written), kernels.at(1)) << "a new winner replaces the old one everywhere";
}

TEST(HotMapTest, ReadersFindWhatWritersPublishMeanwhile) {
  constexpr std::int64_t kProblems = 200;
  constexpr std::size_t kWriters = 4;
  const Kernels kernels;
  HotMap map;
  std::vector<std::thread> threads;
  for (std::size_t writer = 0; writer < kWriters; ++writer) {
    threads.emplace_back([&, writer] {
      for (std::int64_t n = 0; n < kProblems; ++n) {
        map.publish(numbered(n), kernels.at(writer));
        map.alias(Problem::make("vector_add", {{"n", n}}, {{"by", std::to_string(writer)}}),
                  numbered(n));
      }
    });
  }
  for (int reader = 0; reader < 2; ++reader) {
    threads.emplace_back([&] {
      for (std::int64_t n = 0; n < kProblems; ++n) {
        const LoadedKernel* found = map.find(numbered(n));
        EXPECT_TRUE(found == nullptr || kernels.contains(found));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::int64_t n = 0; n < kProblems; ++n) {
    const LoadedKernel* found = map.find(numbered(n));
    ASSERT_TRUE(found != nullptr && kernels.contains(found));
    for (std::size_t writer = 0; writer < kWriters; ++writer) {
      EXPECT_EQ(map.find(Problem::make("vector_add", {{"n", n}}, {{"by", std::to_string(writer)}})),
                found);
    }
  }
}

}  // namespace
}  // namespace kernwright
