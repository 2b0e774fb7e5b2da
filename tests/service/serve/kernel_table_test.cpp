#include "service/serve/kernel_table.h"

#include <atomic>
#include <gtest/gtest.h>
#include <latch>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

namespace kernwright {
namespace {

std::shared_ptr<const LoadedKernel> kernel() {
  return std::make_shared<const LoadedKernel>(KernelSummary{},
                                              std::make_shared<const CompactPlan>(ExecutionPlan()),
                                              nullptr, Error{ErrorCode::unavailable, "no GPU"});
}

class KernelTableTest : public ::testing::Test {
 protected:
  const Problem written_ = Problem::make("vector_add", {{"n", 8}}, {});
  const Problem normalized_ = Problem::make("vector_add", {{"n", 8}}, {{"dtype", "bf16"}});
  KernelTable table_;
};

TEST_F(KernelTableTest, WhatWasMadeIsFoundAsWrittenAndAsNormalised) {
  int made = 0;
  const auto make = [&]() -> KernelTable::Made {
    ++made;
    return kernel();
  };
  EXPECT_EQ(table_.find(written_), nullptr);
  const auto first = table_.find_or_make(written_, normalized_, Match::none, make);
  ASSERT_TRUE(first);
  EXPECT_EQ(table_.find(written_), *first);
  EXPECT_EQ(table_.find(normalized_), *first);
  EXPECT_EQ(*table_.find_or_make(written_, normalized_, Match::none, make), *first);
  EXPECT_EQ(made, 1);
}

TEST_F(KernelTableTest, OfCallersAtOnceOneMakesIt) {
  constexpr int kCallers = 8;
  std::latch together(kCallers);
  std::atomic<int> made{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kCallers; ++i) {
    threads.emplace_back([&] {
      together.arrive_and_wait();
      EXPECT_TRUE(
          table_.find_or_make(written_, normalized_, Match::none, [&]() -> KernelTable::Made {
            ++made;
            return kernel();
          }));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(made, 1);
}

TEST_F(KernelTableTest, AnErrorOrAnExceptionIsNotKept) {
  EXPECT_EQ(table_
                .find_or_make(written_, normalized_, Match::none,
                              [] { return KernelTable::Made(Error{ErrorCode::not_found, "none"}); })
                .error()
                .message,
            "none");
  EXPECT_EQ(table_
                .find_or_make(written_, normalized_, Match::none,
                              []() -> KernelTable::Made { throw std::bad_alloc(); })
                .error()
                .code,
            ErrorCode::internal);
  EXPECT_EQ(table_.find(written_), nullptr);
  EXPECT_TRUE(table_.find_or_make(written_, normalized_, Match::none,
                                  [] { return KernelTable::Made(kernel()); }));
}

TEST_F(KernelTableTest, APublishedKernelReplacesTheOneThatWasServedWhichStays) {
  const auto first = table_.find_or_make(written_, normalized_, Match::none,
                                         [] { return KernelTable::Made(kernel()); });
  ASSERT_TRUE(first);
  const std::weak_ptr<const LoadedKernel> kept = (*first)->weak_from_this();
  const LoadedKernel* second = table_.publish(written_, normalized_, kernel());
  EXPECT_NE(second, *first);
  EXPECT_EQ(table_.find(written_), second);
  EXPECT_FALSE(kept.expired());
}

}  // namespace
}  // namespace kernwright
