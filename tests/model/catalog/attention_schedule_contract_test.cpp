// The contract of the operation attention_schedule.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <string>
#include <string_view>
#include <vector>

#include "support/text.h"
#include "tests/model/built_in_catalog.h"
#include "tests/model/samples.h"
#include "tests/model/valid_candidates.h"

namespace kernwright {
namespace {

class AttentionScheduleContractTest : public ::testing::Test {
 protected:
  static Result<BoundProblem> bind(std::string_view text) {
    return catalog().bind(Problem::parse(text).value());
  }
  static std::vector<std::string> names(const Result<BoundProblem>& problem) {
    EXPECT_TRUE(problem) << problem.error().message;
    std::vector<std::string> all;
    for (const TensorShape& shape : problem->shapes()) all.push_back(shape.name);
    return all;
  }
};

TEST_F(AttentionScheduleContractTest, LengthsAreThoseOfAttention) {
  for (const char* flags : {"lengths=kv", "lengths=kv cache=paged", "lengths=ragged q_total=4",
                            "lengths=ragged q_total=4 cache=paged mask=window window=9"}) {
    const auto schedule =
        bind(concat("attention_schedule batch=2 slots=7 q_len=3 kv_len=50 kv_total=60 ", flags));
    const auto attention = bind(concat("attention batch=2 heads=4 q_len=3 kv_len=50 head_dim=64 ",
                                       "kv_total=60 dtype=bf16 ", flags));
    std::vector<std::string> own = names(schedule);
    EXPECT_EQ(own.back(), "work");
    own.pop_back();
    std::vector<std::string> lengths;
    for (const std::string& name : names(attention)) {
      if (name.ends_with("_offsets") || name.ends_with("_lengths")) lengths.push_back(name);
    }
    EXPECT_EQ(own, lengths) << flags;
  }
}

TEST_F(AttentionScheduleContractTest, TheListIsTheOneThatAttentionReads) {
  const auto schedule = bind("attention_schedule batch=64 slots=33 kv_len=16384 cache=paged");
  const auto attention = bind(
      "attention batch=64 heads=32 kv_heads=8 q_len=1 kv_len=16384 head_dim=128 slots=33 "
      "dtype=bf16 lengths=kv cache=paged schedule=given");
  const std::vector<std::string> all = names(attention);
  const auto place = std::find(all.begin(), all.end(), "work") - all.begin();
  ASSERT_LT(place, static_cast<std::ptrdiff_t>(all.size()));
  EXPECT_EQ(attention->shapes()[static_cast<std::size_t>(place)].extent,
            schedule->shapes().back().extent);
}

TEST_F(AttentionScheduleContractTest, AttentionTakesAListOnlyWhereLengthsDiffer) {
  const auto refused = [](std::string_view more, std::string_view why) {
    const auto problem =
        bind(concat("attention batch=2 heads=4 q_len=1 kv_len=50 head_dim=64 dtype=bf16 ", more));
    ASSERT_FALSE(problem) << more;
    EXPECT_NE(problem.error().message.find(why), std::string::npos) << problem.error().message;
  };
  refused("schedule=given slots=3", "need no work list");
  refused("lengths=kv slots=3", "only a work list has slots");
  refused("lengths=kv schedule=given invariant=batch", "leave room");
}

// Every block of the kernel that follows the list has a slot and a head of k and v.
TEST_F(AttentionScheduleContractTest, TheGridOfAttentionIsThatOfTheList) {
  const auto problem = bind(
      "attention batch=64 heads=32 kv_heads=8 q_len=1 kv_len=16384 head_dim=128 slots=33 "
      "dtype=bf16 lengths=kv schedule=given");
  const auto all = valid_candidates(**catalog().kernel_template("attention/stream"), *problem,
                                    *find_profile("h200"));
  ASSERT_FALSE(all.empty());
  for (const Candidate& candidate : all) {
    EXPECT_EQ(candidate.plan.launches.front().grid[0], 33U * 8U);
    EXPECT_EQ(candidate.plan.launches.front().cluster[0], 1U);
  }
}

TEST_F(AttentionScheduleContractTest, EverySlotHasEightNumbers) {
  const auto problem = bind("attention_schedule batch=3 slots=7 kv_len=50");
  ASSERT_TRUE(problem) << problem.error().message;
  EXPECT_EQ(problem->shapes().back().extent, (std::vector<std::int64_t>{7, 8}));
  EXPECT_EQ(problem->operation().bytes.evaluate(problem->scope()).value(), 3 * 4 + 7 * 32);
}

TEST_F(AttentionScheduleContractTest, WhatDoesNotGoTogetherIsRefused) {
  const auto says = [](std::string_view more, std::string_view why) {
    const auto problem = bind(concat("attention_schedule batch=3 slots=7 kv_len=50 ", more));
    ASSERT_FALSE(problem) << more;
    EXPECT_NE(problem.error().message.find(why), std::string::npos) << problem.error().message;
  };
  says("q_total=2", "only ragged sequences differ");
  says("kv_total=200", "kv_len is the largest number of keys");
  says("window=7", "only mask=window has a window");
  says("kv_total=30 mask=window", "kv_len is the largest number of keys");
}

// One block writes the entries of all slots, however many sequences and slots there are.
TEST_F(AttentionScheduleContractTest, OneBlockWritesAllSlots) {
  for (const char* sku : {"h200", "a100_80"}) {
    for (const char* sizes : {"batch=1 slots=1", "batch=1 slots=4000", "batch=100000 slots=132"}) {
      const auto problem = bind(concat("attention_schedule ", sizes, " kv_len=1000"));
      const auto all = valid_candidates(*catalog().templates_of("attention_schedule").front(),
                                        *problem, *find_profile(sku));
      EXPECT_FALSE(all.empty()) << sizes;
      for (const Candidate& candidate : all) {
        ASSERT_EQ(candidate.plan.launches.size(), 1U);
        EXPECT_EQ(candidate.plan.launches.front().grid[0], 1U);
      }
      EXPECT_TRUE(make_reference_plan(*problem, *find_profile(sku)));
    }
  }
}

}  // namespace
}  // namespace kernwright
