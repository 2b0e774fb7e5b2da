#include "tuner/data/buffer_sets.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <set>
#include <vector>

#include "tests/doubles/fake_device.h"
#include "tests/doubles/host_data_ops.h"
#include "tests/results.h"

namespace kernwright {
namespace {

TensorShape shape(std::string name, TensorRole role, std::vector<std::int64_t> extent) {
  TensorShape made;
  made.name = std::move(name);
  made.role = role;
  made.extent = std::move(extent);
  return made;
}

class BufferSetsTest : public ::testing::Test {
 protected:
  BufferSetsTest() {
    FakeDeviceOptions options;
    options.profile = find_profile("h200").value();
    options.profile.l2_bytes = 1 << 15;
    device_ = make_fake_device(std::move(options), clock_);
  }
  BufferSets make(const CheckedSets& checked, L2State l2 = L2State::cold) {
    TensorShape a = shape("a", TensorRole::in, {10, 101});
    a.warm = true;
    return must(BufferSets::make(*device_, *ops_, {a, shape("c", TensorRole::out, {10, 101})}, l2,
                                 1, checked));
  }
  static bool same_bytes(DevicePointer one, DevicePointer other) {
    return std::memcmp(reinterpret_cast<const void*>(one), reinterpret_cast<const void*>(other),
                       4040) == 0;
  }
  static bool equal(const BufferSets& sets, int one, int other) {
    return same_bytes(sets.address(one, 0), sets.address(other, 0));
  }

  ManualClock clock_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<DataOps> ops_ = make_host_data_ops();
};

TEST_F(BufferSetsTest, TheTwinHoldsWhatSetZeroHoldsAndNoOtherDoes) {
  const BufferSets sets = make({.exact = DrawKind::small_integers});
  ASSERT_EQ(sets.count(), 12);  // of 8 KB, beyond 96 KB
  EXPECT_TRUE(sets.passes_l2());
  EXPECT_TRUE(equal(sets, 0, sets.twin()));
  for (int set = 1; set < sets.twin(); ++set) EXPECT_FALSE(equal(sets, 0, set)) << set;
  EXPECT_FALSE(equal(sets, 0, BufferSets::kExactSet));
}

TEST_F(BufferSetsTest, TheNanSetIsSetZeroButForSomeNan) {
  const BufferSets sets = make({.exact = DrawKind::small_integers, .nan = true});
  ASSERT_TRUE(sets.has_nan_set());
  const auto* const plain = reinterpret_cast<const float*>(sets.address(0, 0));
  const auto* const with_nan = reinterpret_cast<const float*>(sets.address(BufferSets::kNanSet, 0));
  int count = 0;
  for (int i = 0; i < 1010; ++i) {
    if (std::isnan(with_nan[i])) {
      ++count;
    } else {
      EXPECT_EQ(with_nan[i], plain[i]) << i;
    }
  }
  EXPECT_EQ(count, 2) << "in a quarter of ten rows";
  EXPECT_TRUE(std::isnan(with_nan[1009])) << "the last";
  EXPECT_EQ(sets.watched().size(), 12U);
  // Drawn anew to another place, and with the rest.
  const auto copy = must(device_->allocate(4040));
  const DevicePointer to = copy->address();
  ASSERT_TRUE(sets.draw(*device_, *ops_, BufferSets::kNanSet, 0, to));
  EXPECT_TRUE(same_bytes(to, sets.address(BufferSets::kNanSet, 0)));
  ASSERT_TRUE(sets.restore(*device_, *ops_));
  EXPECT_TRUE(same_bytes(to, sets.address(BufferSets::kNanSet, 0)));
}

TEST_F(BufferSetsTest, IntegersHaveNoNanSet) {
  TensorShape a = shape("a", TensorRole::in, {64});
  a.dtype = DType::int32;
  const auto sets = must(BufferSets::make(*device_, *ops_, {a, shape("c", TensorRole::out, {64})},
                                          L2State::warm, 1, {.nan = true}));
  EXPECT_FALSE(sets.has_nan_set());
  EXPECT_EQ(sets.watched().size(), 4U);
}

TEST(NanElementsTest, AreFewInEveryShape) {
  EXPECT_EQ(nan_elements(shape("a", TensorRole::in, {1}), 1), std::vector<std::int64_t>{0});
  EXPECT_EQ(nan_elements(shape("a", TensorRole::in, {3, 5}), 1), std::vector<std::int64_t>{14});
  EXPECT_EQ(nan_elements(shape("a", TensorRole::in, {1000}), 1).size(), 15U);
  EXPECT_EQ(nan_elements(shape("a", TensorRole::in, {1000, 1000}), 1).size(), 64U);
  for (const std::int64_t place : nan_elements(shape("a", TensorRole::in, {40, 7}), 9)) {
    EXPECT_GE(place, 0);
    EXPECT_LT(place, 280);
  }
}

TEST_F(BufferSetsTest, MixedSetsShareWhatIsWarmAndRotateTheRest) {
  const BufferSets sets = make({.exact = DrawKind::small_integers}, L2State::mixed);
  ASSERT_EQ(sets.count(), 24) << "of 4 KB, beyond 96 KB: what is warm does not count";
  EXPECT_TRUE(sets.passes_l2());
  std::set<DevicePointer> outputs;
  for (int set = 0; set < sets.count(); ++set) {
    EXPECT_EQ(sets.address(set, 0), sets.address(0, 0));
    outputs.insert(sets.address(set, 1));
  }
  EXPECT_EQ(outputs.size(), 24U);
  EXPECT_NE(sets.address(BufferSets::kExactSet, 0), sets.address(0, 0));
  EXPECT_FALSE(equal(sets, 0, BufferSets::kExactSet));
}

TEST_F(BufferSetsTest, WhatIsWarmIsProducedAgainAsItWas) {
  for (const L2State l2 : {L2State::mixed, L2State::cold}) {
    const BufferSets sets = make({}, l2);
    auto* const a = reinterpret_cast<std::byte*>(sets.address(0, 0));
    const std::vector<std::byte> before(a, a + 4040);
    std::fill_n(a, 4040, std::byte{0});
    ASSERT_TRUE(sets.produce_warm(*ops_));
    EXPECT_EQ(std::equal(before.begin(), before.end(), a), l2 == L2State::mixed);
  }
}

TEST_F(BufferSetsTest, CheckedTensorsLieBetweenRedZonesToTheByte) {
  const BufferSets sets = make({.exact = DrawKind::small_integers});
  const std::vector<WatchedRegion>& watched = sets.watched();
  ASSERT_EQ(watched.size(), 8U);  // of either checked set: three zones and an input
  EXPECT_EQ(watched[0].behind, "a");
  EXPECT_EQ(watched[0].region.address + static_cast<DevicePointer>(watched[0].region.bytes),
            sets.address(0, 0));
  EXPECT_TRUE(watched[1].is_input);
  EXPECT_EQ(watched[2].region.address, sets.address(0, 0) + 4040);
  EXPECT_EQ(watched[2].before, "a");
  EXPECT_EQ(watched[2].behind, "c");
  EXPECT_EQ(watched[3].before, "c");
  for (const WatchedRegion& one : watched) {
    if (!one.is_input) {
      EXPECT_GE(one.region.bytes, 2 << 20);
    }
  }
  EXPECT_EQ(make({}).watched().size(), 4U);
}

TEST_F(BufferSetsTest, PoisonSparesWhatLiesBetweenRows) {
  TensorShape c = shape("c", TensorRole::out, {3, 10});
  c.dtype = DType::fp32;
  c.pitches = {16};
  const auto sets = must(BufferSets::make(*device_, *ops_, {c}, L2State::warm, 1));
  ASSERT_TRUE(sets.poison(*device_, *ops_, 0, 0x7B));
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(sets.address(0, 0));
  for (std::int64_t i = 0; i < c.bytes(); ++i) {
    EXPECT_EQ(bytes[i], i % 64 < 40 ? 0x7B : kGapByte) << i;
  }
}

TEST_F(BufferSetsTest, DamageIsToldFromTheNearerSide) {
  WatchedRegion zone;
  zone.before = "a";
  zone.behind = "c";
  EXPECT_EQ(zone.describe(12, 4000), "wrote 12 bytes behind the end of a");
  EXPECT_EQ(zone.describe(4000, 12), "wrote 12 bytes before the start of c");
  zone.behind = "";
  EXPECT_EQ(zone.describe(4000, 12), "wrote 4000 bytes behind the end of a");
  zone.before = "";
  zone.behind = "a";
  EXPECT_EQ(zone.describe(12, 4000), "wrote 4000 bytes before the start of a");
}

TEST(RedZoneTest, HoldsATilesOverhangWithinReason) {
  EXPECT_EQ(red_zone_bytes(std::vector{shape("a", TensorRole::in, {4, 4})}), 2 << 20);
  EXPECT_EQ(red_zone_bytes(std::vector{shape("a", TensorRole::in, {4, 4096})}), 4 << 20);
  EXPECT_EQ(red_zone_bytes(std::vector{shape("a", TensorRole::in, {1 << 30})}), 16 << 20);
}

}  // namespace
}  // namespace kernwright
