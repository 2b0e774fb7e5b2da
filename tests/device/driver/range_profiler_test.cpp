#include "device/driver/range_profiler.h"

#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fake_cupti.h"
#include "tests/results.h"

namespace kernwright {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

class RangeProfilerTest : public ::testing::Test {
 protected:
  using Values = std::vector<std::vector<CounterValue>>;

  Result<std::unique_ptr<RangeProfiler>> open() {
    return RangeProfiler::open(cupti_.api, nullptr, 0);
  }
  /// Counts a launch of `ran` kernels as one of `kernels`.
  Result<Values> count(std::size_t kernels = 1, std::size_t ran = 1) {
    auto profiler = open();
    if (!profiler) return profiler.error();
    return count(**profiler, kernels, ran);
  }
  Result<Values> count(RangeProfiler& profiler, std::size_t kernels, std::size_t ran) {
    return profiler.count(
        kernels,
        [&]() -> Result<void> {
          ++prepared_;
          return {};
        },
        [&]() -> Result<void> {
          ++launched_;
          for (std::size_t i = 0; i < ran; ++i) cupti_.run_kernel();
          return fails_;
        });
  }
  static const CounterValue& value(const std::vector<CounterValue>& values, std::string_view name) {
    const auto found = std::ranges::find(values, name, &CounterValue::name);
    EXPECT_NE(found, values.end()) << name;
    return *found;
  }

  FakeCupti cupti_;
  int prepared_ = 0;
  int launched_ = 0;
  Result<void> fails_;
};

TEST_F(RangeProfilerTest, CountsEveryKernelOfALaunch) {
  cupti_.values[std::string(kTimeCounter)] = 5216;
  const Values counted = must(count(2, 2));
  ASSERT_EQ(counted.size(), 2U);
  EXPECT_EQ(counted.front().size(), counters().size());
  EXPECT_EQ(value(counted.front(), kTimeCounter).value, 5216);
  EXPECT_EQ(value(counted.back(), kTimeCounter).value, 5217);
  for (std::size_t i = 0; i < counters().size(); ++i) {
    EXPECT_EQ(counted.front()[i].name, counters()[i].name);
  }
}

TEST_F(RangeProfilerTest, TheL2IsPreparedAndTheKernelsRunForEachPass) {
  cupti_.passes = [](const std::vector<std::string>& names) { return names.size() / 4; };
  // The hit rate is made of two metrics. The first count does everything twice.
  const std::size_t passes = (counters().size() + 1) / 4;
  const Values counted = must(count(2, 2));
  ASSERT_GT(passes, 1U);
  EXPECT_EQ(prepared_, static_cast<int>(2 * passes));
  EXPECT_EQ(launched_, static_cast<int>(2 * passes));
  EXPECT_EQ(cupti_.starts, static_cast<int>(2 * passes));
}

TEST_F(RangeProfilerTest, TheFirstCountAloneIsDoneTwiceAndTheSecondIsGiven) {
  const auto profiler = must(open());
  // CUPTI's start leaves lines in the L2, which the first kernel writes back.
  const auto launch = [&]() -> Result<void> {
    cupti_.values[std::string(kDramWriteCounter)] = launched_++ == 0 ? 29e6 : 26e6;
    cupti_.run_kernel();
    return {};
  };
  const auto nothing = []() -> Result<void> { return {}; };
  for (const int launches : {2, 3}) {
    const Values counted = must(profiler->count(1, nothing, launch));
    EXPECT_EQ(value(counted.front(), kDramWriteCounter).value, 26e6);
    EXPECT_EQ(launched_, launches);
  }
}

TEST_F(RangeProfilerTest, TheHitRateIsOfHitsAndMisses) {
  cupti_.values["lts__t_sectors_lookup_hit.sum"] = 30;
  cupti_.values["lts__t_sectors_lookup_miss.sum"] = 10;
  cupti_.values[std::string(kL2HitCounter)] = 103.9;
  const Values counted = must(count());
  EXPECT_EQ(value(counted.front(), kL2HitCounter).value, 75);
  EXPECT_EQ(value(counted.front(), kL2HitCounter).reason, "");
}

TEST_F(RangeProfilerTest, AKernelThatAsksTheL2ForNothingHasNoHitRate) {
  cupti_.values["lts__t_sectors_lookup_hit.sum"] = 0;
  cupti_.values["lts__t_sectors_lookup_miss.sum"] = 0;
  const Values counted = must(count());
  EXPECT_FALSE(value(counted.front(), kL2HitCounter).value);
  EXPECT_EQ(value(counted.front(), kL2HitCounter).reason, "no number was counted");
}

TEST_F(RangeProfilerTest, WhereHitsAreNotCountedTheRateIsLeftOut) {
  cupti_.unknown = {"lts__t_sectors_lookup_miss.sum"};
  const Values counted = must(count());
  EXPECT_FALSE(value(counted.front(), kL2HitCounter).value);
  EXPECT_THAT(value(counted.front(), kL2HitCounter).reason, HasSubstr("does not count it"));
}

TEST_F(RangeProfilerTest, EveryCountOfOneProfilerHasNumbers) {
  const auto profiler = must(open());
  for (int time = 0; time < 3; ++time) {
    const Values counted = must(count(*profiler, 1, 1));
    for (const CounterValue& value : counted.front()) {
      EXPECT_TRUE(value.value) << value.name << ' ' << value.reason;
    }
  }
}

TEST_F(RangeProfilerTest, MorePassesThanPlannedAreAnError) {
  cupti_.late_passes = 1;
  EXPECT_THAT(count(), Fails("CUPTI wants more passes than the 1 that it planned"));
}

TEST_F(RangeProfilerTest, WhatTheChipDoesNotHaveIsLeftOutWithTheReason) {
  const std::string gmma = "smsp__average_warps_issue_stalled_gmma_per_issue_active.ratio";
  cupti_.unknown = {gmma};
  const Values counted = must(count());
  EXPECT_FALSE(value(counted.front(), gmma).value);
  EXPECT_THAT(value(counted.front(), gmma).reason, HasSubstr("the chip GH100 does not count it"));
  EXPECT_TRUE(value(counted.front(), kTimeCounter).value);
  for (std::size_t i = 0; i < counters().size(); ++i) {
    EXPECT_EQ(counted.front()[i].name, counters()[i].name);
  }
}

TEST_F(RangeProfilerTest, AChipThatHasNoneOfThemIsAnError) {
  for (const Counter& counter : counters()) cupti_.unknown.emplace(counter.name);
  cupti_.unknown.emplace("lts__t_sectors_lookup_hit.sum");
  EXPECT_THAT(open(), Fails(HasSubstr("cuptiProfilerHostConfigAddMetrics")));
  EXPECT_EQ(cupti_.hosts, 0);
}

TEST_F(RangeProfilerTest, ValuesThatCannotBeAreMarkedAndNotClamped) {
  cupti_.values[std::string(kIssueCounter)] = 103.9;
  cupti_.values[std::string(kDramShareCounter)] = std::numeric_limits<double>::quiet_NaN();
  const Values counted = must(count());
  const CounterValue& issue = value(counted.front(), kIssueCounter);
  EXPECT_EQ(issue.value, 103.9);
  EXPECT_THAT(issue.reason, HasSubstr("103.9 is not in 0 to 100"));
  const CounterValue& share = value(counted.front(), kDramShareCounter);
  EXPECT_FALSE(share.value);
  EXPECT_EQ(share.reason, "no number was counted");
  EXPECT_EQ(value(counted.front(), kTimeCounter).reason, "");
}

TEST_F(RangeProfilerTest, OtherKernelsBetweenAreAnError) {
  EXPECT_THAT(count(1, 2), Fails("CUPTI counted 2 kernels of a launch that has 1"));
}

TEST_F(RangeProfilerTest, AFailedLaunchEndsTheRange) {
  fails_ = Error{ErrorCode::device, "illegal address"};
  EXPECT_THAT(count(), Fails("illegal address"));
  EXPECT_THAT(cupti_.calls, Contains("cuptiRangeProfilerStop"));
}

TEST_F(RangeProfilerTest, NoCountersAtAllAreAnErrorBeforeTheyCanEndTheProcess) {
  cupti_.availability_bytes = 0;
  EXPECT_THAT(open(), Fails(HasSubstr("knows no counters of the chip \"GH100\"")));
}

/// The call that CUPTI refuses, and its error.
struct Refusal {
  std::string function;
  int status;
  ErrorCode code;
  std::string says;
};

class RangeProfilerRefusalTest : public RangeProfilerTest,
                                 public ::testing::WithParamInterface<Refusal> {};

TEST_P(RangeProfilerRefusalTest, IsAnErrorWithTheRemedyAndLeavesNothing) {
  const Refusal& refusal = GetParam();
  cupti_.failures[refusal.function] = refusal.status;
  EXPECT_THAT(count(), Fails(refusal.code, ::testing::AllOf(HasSubstr(refusal.function),
                                                            HasSubstr(refusal.says))));
  EXPECT_EQ(cupti_.hosts, 0);
  EXPECT_EQ(cupti_.enabled, 0);
}

INSTANTIATE_TEST_SUITE_P(
    All, RangeProfilerRefusalTest,
    ::testing::Values(
        Refusal{"cuptiRangeProfilerEnable", 26, ErrorCode::unavailable, "another profiler"},
        Refusal{"cuptiRangeProfilerStart", 26, ErrorCode::unavailable, "another profiler"},
        Refusal{"cuptiRangeProfilerEnable", 39, ErrorCode::unavailable, "under ncu or nsys"},
        Refusal{"cuptiProfilerInitialize", 39, ErrorCode::unavailable, "under ncu or nsys"},
        Refusal{"cuptiRangeProfilerEnable", 35, ErrorCode::unavailable, "CAP_SYS_ADMIN"},
        Refusal{"cuptiRangeProfilerStart", 35, ErrorCode::unavailable, "CAP_SYS_ADMIN"},
        Refusal{"cuptiProfilerGetCounterAvailability", 1, ErrorCode::device, "CUPTI 13.0"},
        Refusal{"cuptiProfilerHostInitialize", 1, ErrorCode::device, "CUPTI 13.0"},
        Refusal{"cuptiRangeProfilerDecodeData", 999, ErrorCode::device, "999"}));

TEST_F(RangeProfilerTest, NothingIsLeftBehind) {
  ASSERT_TRUE(count());
  EXPECT_EQ(cupti_.hosts, 0);
  EXPECT_EQ(cupti_.enabled, 0);
}

}  // namespace
}  // namespace kernwright
