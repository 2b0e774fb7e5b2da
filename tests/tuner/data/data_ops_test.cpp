#include "tuner/data/data_ops.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <initializer_list>
#include <limits>
#include <utility>
#include <vector>

#include "tests/doubles/host_data_ops.h"
#include "tests/results.h"
#include "tuner/data/element.h"

namespace kernwright {
namespace {

DevicePointer address(const void* data) { return reinterpret_cast<DevicePointer>(data); }

class HostDataOpsTest : public ::testing::Test {
 protected:
  CheckReport compare(const std::vector<float>& actual, const std::vector<float>& reference,
                      const ErrorBound& bound) {
    const std::vector<float> magnitude(actual.size(), 2);
    return must(ops_->compare(address(actual.data()), DType::fp32, std::ssize(actual),
                              address(reference.data()), address(magnitude.data()), bound));
  }

  std::unique_ptr<DataOps> ops_ = make_host_data_ops();
};

TEST_F(HostDataOpsTest, NormalsHaveMeanZeroAndVarianceOne) {
  std::vector<float> values(100000);
  ASSERT_TRUE(
      ops_->draw(address(values.data()), DType::fp32, std::ssize(values), {DrawKind::normal}, 7));
  double sum = 0;
  double squares = 0;
  for (const float v : values) {
    sum += static_cast<double>(v);
    squares += static_cast<double>(v) * static_cast<double>(v);
  }
  EXPECT_NEAR(sum / 1e5, 0, 0.02);
  EXPECT_NEAR(squares / 1e5, 1, 0.02);
}

TEST_F(HostDataOpsTest, AnElementDependsOnSeedAndIndexAlone) {
  std::vector<float> all(100);
  std::vector<float> some(10);
  std::vector<float> other(100);
  ASSERT_TRUE(ops_->draw(address(all.data()), DType::fp32, 100, {DrawKind::normal}, 7));
  ASSERT_TRUE(ops_->draw(address(some.data()), DType::fp32, 10, {DrawKind::normal}, 7));
  ASSERT_TRUE(ops_->draw(address(other.data()), DType::fp32, 100, {DrawKind::normal}, 8));
  EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin()));
  EXPECT_NE(all, other);
}

TEST_F(HostDataOpsTest, WhatLiesBetweenRowsIsLeftAsItIs) {
  TensorShape shape;
  shape.extent = {3, 4};
  shape.pitches = {7};
  std::vector<float> apart(21, 5);
  std::vector<float> together(12);
  ASSERT_TRUE(
      ops_->draw(address(apart.data()), DType::fp32, shape.layout(), {DrawKind::normal}, 7));
  ASSERT_TRUE(ops_->draw(address(together.data()), DType::fp32, 12, {DrawKind::normal}, 7));
  for (std::size_t i = 0; i < together.size(); ++i) {
    EXPECT_EQ(apart[i / 4 * 7 + i % 4], together[i]) << i;
  }
  EXPECT_TRUE(std::isnan(apart[4]) && std::isnan(apart[6]) && std::isnan(apart[13]));
  EXPECT_EQ(apart[18], 5) << "behind the last row";

  const auto compare = [&] {
    return ops_
        ->compare(address(apart.data()), DType::fp32, shape.layout(), address(together.data()), 0,
                  {0, 0, true})
        .value();
  };
  EXPECT_EQ(compare().mismatches, 0);
  EXPECT_EQ(compare().elements, 12);
  apart[7] += 1;
  EXPECT_EQ(compare().first_mismatch, "7");
  apart[5] = 0;
  EXPECT_EQ(compare().mismatches, 2);
  EXPECT_EQ(compare().first_mismatch, "5") << "between rows";
}

TEST_F(HostDataOpsTest, EntriesOfEveryDimMayLieApart) {
  TensorShape shape;
  shape.extent = {2, 3, 2, 4};
  shape.pitches = {60, 17, 5};
  std::vector<float> apart(104, 5);
  std::vector<float> together(48);
  ASSERT_TRUE(
      ops_->draw(address(apart.data()), DType::fp32, shape.layout(), {DrawKind::normal}, 7));
  ASSERT_TRUE(ops_->draw(address(together.data()), DType::fp32, 48, {DrawKind::normal}, 7));
  const auto gaps =
      std::count_if(apart.begin(), apart.end(), [](float x) { return std::isnan(x); });
  EXPECT_EQ(gaps, 103 - 48);
  EXPECT_EQ(apart[103], 5) << "behind the last";
  for (std::size_t i = 0; i < together.size(); ++i) {
    EXPECT_EQ(apart[i / 24 * 60 + i / 8 % 3 * 17 + i / 4 % 2 * 5 + i % 4], together[i]) << i;
  }
  const auto first = [&] {
    return ops_
        ->compare(address(apart.data()), DType::fp32, shape.layout(), address(together.data()), 0,
                  {0, 0, true})
        .value()
        .first_mismatch;
  };
  EXPECT_EQ(first(), "");
  apart[60 + 34 + 5] += 1;
  EXPECT_EQ(first(), "99");
  apart[51] = 0;
  EXPECT_EQ(first(), "51") << "between two entries of the outermost dim";
}

TEST_F(HostDataOpsTest, AnInfiniteResultMeetsAnInfiniteReference) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> reference{-infinity, -infinity, infinity, 1};
  const auto mismatches = [&](const std::vector<float>& actual, bool infinite) {
    ErrorBound bound{1e9, 1e9};
    bound.infinite = infinite;
    return ops_
        ->compare(address(actual.data()), DType::fp32, 4, address(reference.data()),
                  address(reference.data()), bound)
        .value()
        .mismatches;
  };
  EXPECT_EQ(mismatches(reference, true), 0);
  EXPECT_EQ(mismatches({-1e30F, infinity, infinity, 1}, true), 2);
  EXPECT_EQ(mismatches({-infinity, -infinity, infinity, -infinity}, true), 1);
  EXPECT_EQ(mismatches(reference, false), 3) << "no bound of an infinite result holds";
}

TEST_F(HostDataOpsTest, SmallIntegersAreMinusThreeToThree) {
  std::vector<std::uint16_t> values(7000);
  ASSERT_TRUE(ops_->draw(address(values.data()), DType::bf16, std::ssize(values),
                         {DrawKind::small_integers}, 1));
  std::vector<int> counts(7);
  for (std::int64_t i = 0; i < 7000; ++i) {
    const double value = load_element(values.data(), DType::bf16, i);
    ASSERT_EQ(value, std::round(value));
    ASSERT_LE(std::fabs(value), 3);
    ++counts[static_cast<std::size_t>(value + 3)];
  }
  for (const int count : counts) EXPECT_NEAR(count, 1000, 150);
}

TEST_F(HostDataOpsTest, SignsAreMinusOneToOne) {
  std::vector<float> values(3000);
  ASSERT_TRUE(
      ops_->draw(address(values.data()), DType::fp32, std::ssize(values), {DrawKind::signs}, 1));
  for (const float value : {-1.0F, 0.0F, 1.0F}) {
    EXPECT_NEAR(static_cast<double>(std::count(values.begin(), values.end(), value)), 1000, 120);
  }
}

TEST_F(HostDataOpsTest, UniformFloatsLieBetweenTheirEnds) {
  std::vector<float> values(10000);
  ASSERT_TRUE(ops_->draw(address(values.data()), DType::fp32, std::ssize(values),
                         {DrawKind::uniform, -2, 6}, 1));
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  EXPECT_GE(*least, -2);
  EXPECT_LT(*least, -1.9F);
  EXPECT_LE(*most, 6);
  EXPECT_GT(*most, 5.9F);
}

TEST_F(HostDataOpsTest, UniformIntegersHaveBothEnds) {
  std::vector<std::uint8_t> values(10000);
  ASSERT_TRUE(ops_->draw(address(values.data()), DType::uint8, std::ssize(values),
                         {DrawKind::uniform, 250, 255}, 1));
  for (int value = 250; value <= 255; ++value) {
    EXPECT_NEAR(static_cast<double>(std::count(values.begin(), values.end(), value)), 1667, 200);
  }
}

TEST_F(HostDataOpsTest, EveryRowIsAPermutationOfItsOwn) {
  std::vector<std::int32_t> values(150);
  TensorShape shape;
  shape.extent = {3, 50};
  ASSERT_TRUE(
      ops_->draw(address(values.data()), DType::int32, shape.layout(), {DrawKind::permutation}, 1));
  std::vector<std::vector<std::int32_t>> rows;
  for (auto row = values.begin(); row != values.end(); row += 50) rows.emplace_back(row, row + 50);
  EXPECT_NE(rows[0], rows[1]);
  EXPECT_NE(rows[1], rows[2]);
  for (std::vector<std::int32_t>& row : rows) {
    std::sort(row.begin(), row.end());
    for (int i = 0; i < 50; ++i) EXPECT_EQ(row[static_cast<std::size_t>(i)], i);
  }
}

TEST_F(HostDataOpsTest, EveryRowOfOffsetsRisesToItsEnd) {
  std::vector<std::int64_t> values(150);
  TensorShape shape;
  shape.extent = {3, 50};
  ASSERT_TRUE(ops_->draw(address(values.data()), DType::int64, shape.layout(),
                         {DrawKind::offsets, 0, 1000}, 1));
  std::vector<std::int64_t> steps;
  for (auto row = values.begin(); row != values.end(); row += 50) {
    EXPECT_EQ(*row, 0);
    EXPECT_EQ(*(row + 49), 1000);
    for (auto at = row; at != row + 49; ++at) steps.push_back(*(at + 1) - *at);
  }
  const auto [least, most] = std::minmax_element(steps.begin(), steps.end());
  EXPECT_GE(*least, 0);
  EXPECT_LT(*least, 8);
  EXPECT_GT(*most, 32) << "of 20 on average";
}

TEST_F(HostDataOpsTest, AConstantIsOneValueInEveryDtype) {
  for (const DType dtype : kDTypes) {
    std::vector<char> values(static_cast<std::size_t>(bytes_of(10, dtype)));
    ASSERT_TRUE(ops_->draw(address(values.data()), dtype, 10, {DrawKind::constant, 1}, 1));
    for (std::int64_t i = 0; i < 10; ++i) {
      EXPECT_EQ(load_element(values.data(), dtype, i), 1) << to_string(dtype);
    }
  }
}

TEST_F(HostDataOpsTest, WhatHasNoSignIsDrawnWithout) {
  std::vector<std::uint8_t> values(7000);
  for (const DType dtype : {DType::uint8, DType::boolean}) {
    ASSERT_TRUE(ops_->draw(address(values.data()), dtype, std::ssize(values), {}, 1));
    const std::uint8_t most = dtype == DType::uint8 ? 3 : 1;
    EXPECT_EQ(*std::max_element(values.begin(), values.end()), most) << to_string(dtype);
    EXPECT_GT(std::count(values.begin(), values.end(), most), 1500) << to_string(dtype);
  }
}

TEST_F(HostDataOpsTest, WideIntegersAreMetToTheLastDigit) {
  const std::vector<std::int64_t> reference{(std::int64_t{1} << 60) + 1, -5};
  const auto mismatches = [&](const auto& actual, DType dtype) {
    return must(ops_->compare(address(actual.data()), dtype, 2, address(reference.data()), 0,
                              {1e9, 1e9}))
        .mismatches;
  };
  EXPECT_EQ(mismatches(reference, DType::int64), 0);
  EXPECT_EQ(mismatches(std::vector<std::int64_t>{std::int64_t{1} << 60, -5}, DType::int64), 1);
  EXPECT_EQ(mismatches(std::vector<std::int32_t>{1, -5}, DType::int32), 1);
}

TEST_F(HostDataOpsTest, ExactMeansTheRoundedReference) {
  // 257 is between two bf16 values and is rounded to the even one, 256.
  const std::vector<float> reference{257, -3, 0};
  std::vector<std::uint16_t> actual(3);
  const auto mismatches = [&](std::initializer_list<double> values) {
    std::int64_t i = 0;
    for (const double value : values) store_element(actual.data(), DType::bf16, i++, value);
    return must(ops_->compare(address(actual.data()), DType::bf16, 3, address(reference.data()), 0,
                              {0, 0, true}))
        .mismatches;
  };
  EXPECT_EQ(mismatches({256, -3, -0.0}), 0);
  EXPECT_EQ(mismatches({258, -3, 0}), 1);
  EXPECT_EQ(mismatches({256, 3, 0x1p-133}), 2);
  EXPECT_EQ(mismatches({std::numeric_limits<double>::quiet_NaN(), -3, 0}), 1);
}

TEST_F(HostDataOpsTest, AHashIsOfTheBytesOfItsRegion) {
  alignas(8) std::array<unsigned char, 64> bytes{};
  const auto hash = [&](std::size_t from, std::int64_t count) {
    const std::vector<MemoryRegion> regions{{address(bytes.data()) + from, count}};
    EXPECT_TRUE(ops_->enqueue_hash(regions));
    return ops_->take_findings().value()[0].hash;
  };
  const std::uint64_t before = hash(3, 40);
  bytes[2] = 1;
  bytes[43] = 1;
  EXPECT_EQ(hash(3, 40), before);
  for (const std::size_t inside : {3U, 20U, 42U}) {
    bytes[inside] = 1;
    EXPECT_NE(hash(3, 40), before) << inside;
    bytes[inside] = 0;
  }
  bytes[20] = 1;
  const std::uint64_t early = hash(3, 40);
  std::swap(bytes[20], bytes[28]);
  EXPECT_NE(hash(3, 40), early) << "the same bytes at another place";
}

TEST_F(HostDataOpsTest, WithinTheBoundNothingMismatches) {
  // bound = 0.1 * 2 + 0.01 * 10 = 0.3
  const CheckReport report = compare({10.25F, 9.75F}, {10, 10}, {0.1, 0.01});
  EXPECT_EQ(report.mismatches, 0);
  EXPECT_NEAR(report.max_error, 0.25 / 0.3, 1e-6);
  EXPECT_EQ(report.elements, 2);
  EXPECT_TRUE(report.first_mismatch.empty());
}

TEST_F(HostDataOpsTest, AnIntegerMayBeARoundedValueAndNoOther) {
  const std::vector<signed char> actual{2, 2, 2, -7};
  const std::vector<float> reference{2.25F, 2, 1.5F, -7.75F};
  const std::vector<float> magnitude(4, 1);
  const auto report =
      must(ops_->compare(address(actual.data()), DType::int8, 4, address(reference.data()),
                         address(magnitude.data()), {1e-6, 0}));
  EXPECT_EQ(report.mismatches, 1);
  EXPECT_EQ(report.first_mismatch, "3");
}

TEST_F(HostDataOpsTest, TheFirstMismatchIsNamed) {
  const CheckReport report = compare({10, 10.5F, 12}, {10, 10, 10}, {0.1, 0.01});
  EXPECT_EQ(report.mismatches, 2);
  EXPECT_EQ(report.first_mismatch, "1");
  EXPECT_NEAR(report.max_error, 2 / 0.3, 1e-5);
}

TEST_F(HostDataOpsTest, NanAndInfinityNeverPass) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const CheckReport report = compare({nan, inf, -inf}, {10, 10, 10}, {1e20, 1});
  EXPECT_EQ(report.mismatches, 3);
  EXPECT_EQ(report.max_error, kWorstError);
  EXPECT_EQ(compare({1}, {nan}, {1, 1}).mismatches, 1);
}

TEST_F(HostDataOpsTest, WhereANanIsAskedForNothingElsePasses) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  ErrorBound bound{0.1, 0.01};
  bound.nan = true;
  EXPECT_EQ(compare({nan, 10, 2}, {nan, 10, 2}, bound).mismatches, 0);
  EXPECT_EQ(compare({0, 10, 2}, {nan, 10, 2}, bound).first_mismatch, "0");
  EXPECT_EQ(compare({std::numeric_limits<float>::infinity(), 10}, {nan, 10}, bound).max_error,
            kWorstError);
  EXPECT_EQ(compare({nan, nan, 2}, {nan, 10, 2}, bound).first_mismatch, "1");
}

TEST_F(HostDataOpsTest, AnIntegerHasZeroForANan) {
  const std::vector<float> reference{std::numeric_limits<float>::quiet_NaN(), 7};
  const std::vector<float> magnitude(2, 1);
  const auto mismatches = [&](const std::vector<signed char>& actual) {
    return must(ops_->compare(address(actual.data()), DType::int8, 2, address(reference.data()),
                              address(magnitude.data()), {.accumulate_unit = 1e-6, .nan = true}))
        .mismatches;
  };
  EXPECT_EQ(mismatches({0, 7}), 0);
  EXPECT_EQ(mismatches({-128, 7}), 1);
}

TEST_F(HostDataOpsTest, WhatAnOutputCannotHoldIsComparedAtItsEnd) {
  const std::vector<float> reference{70000, -1e9F, 65519, 60000, 60000};
  const std::vector<float> magnitude(5, 1);
  const auto mismatches = [&](DType dtype, std::initializer_list<double> values) {
    std::vector<std::uint16_t> actual(5);
    std::int64_t i = 0;
    for (const double value : values) store_element(actual.data(), dtype, i++, value);
    return must(ops_->compare(address(actual.data()), dtype, 5, address(reference.data()),
                              address(magnitude.data()), {1e-3, 0x1p-11}))
        .mismatches;
  };
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(mismatches(DType::fp16, {inf, -inf, 65504, 60000, 60000}), 0);
  EXPECT_EQ(mismatches(DType::fp16, {-inf, inf, inf, inf, nan}), 4) << "65519 is next to infinity";
  EXPECT_EQ(mismatches(DType::fp16, {nan, 60000, 60000, 60000, 60000}), 3);
  EXPECT_EQ(mismatches(DType::fp8_e4m3, {1000, -448, 448, 448, 448}), 0) << "it saturates";
  EXPECT_EQ(mismatches(DType::fp8_e4m3, {416, 448, 448, 448, 448}), 2);
}

}  // namespace
}  // namespace kernwright
