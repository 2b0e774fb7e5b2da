#include <algorithm>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>

#include "model/operation/dtype_format.h"
#include "support/text.h"
#include "tests/doubles/host_data_ops.h"
#include "tests/results.h"
#include "tests/tuner/gpu_world.h"
#include "tuner/data/element.h"

namespace kernwright {
namespace {

class DataOpsGpuTest : public GpuWorld {
 protected:
  std::vector<DType> dtypes() const { return {std::begin(kDTypes), std::end(kDTypes)}; }
  /// Values that a reference of outputs of `dtype` has.
  std::unique_ptr<DeviceBuffer> upload_reference(const std::vector<float>& values, DType dtype) {
    if (reference_dtype(dtype) == DType::fp32) return upload(values);
    std::vector<std::int64_t> whole(values.size());
    std::transform(values.begin(), values.end(), whole.begin(),
                   [](float x) { return static_cast<std::int64_t>(x); });
    auto buffer = allocate(std::ssize(whole) * 8);
    EXPECT_TRUE(device_->upload(buffer->address(), std::as_bytes(std::span(whole))));
    return buffer;
  }
  std::unique_ptr<DeviceBuffer> allocate(std::int64_t bytes) {
    return must(device_->allocate(bytes));
  }
  std::unique_ptr<DeviceBuffer> upload(const std::vector<float>& values) {
    auto buffer = allocate(std::ssize(values) * 4);
    EXPECT_TRUE(device_->upload(buffer->address(), std::as_bytes(std::span(values))));
    return buffer;
  }

  std::unique_ptr<DataOps> host_ = make_host_data_ops();
};

TEST_F(DataOpsGpuTest, DrawsWhatTheHostDraws) {
  constexpr std::int64_t kElements = 100'003;
  for (const DType dtype : dtypes()) {
    for (const Draw& draw :
         {Draw{DrawKind::normal}, Draw{DrawKind::small_integers}, Draw{DrawKind::signs}}) {
      const std::int64_t bytes = bytes_of(kElements, dtype);
      const auto buffer = allocate(bytes);
      ASSERT_TRUE(ops_->draw(buffer->address(), dtype, kElements, draw, 42));
      const auto device = download<char>(buffer->address(), bytes);
      std::vector<char> host(static_cast<std::size_t>(bytes));
      ASSERT_TRUE(
          host_->draw(reinterpret_cast<DevicePointer>(host.data()), dtype, kElements, draw, 42));
      // The logarithm and the cosine differ in their last bits, which may move a rounding.
      const double ulp = bytes_of(1, dtype) == 1 ? 0x1p-2 : bytes_of(1, dtype) == 2 ? 0x1p-7 : 1e-5;
      const bool exact = draw.kind != DrawKind::normal || is_integer(dtype);
      for (std::int64_t i = 0; i < kElements; ++i) {
        const double expected = load_element(host.data(), dtype, i);
        const double drawn = load_element(device.data(), dtype, i);
        ASSERT_LE(std::fabs(drawn - expected), exact ? 0 : ulp * std::fabs(expected) + 1e-5)
            << to_string(dtype) << " " << i << ": " << drawn << " " << expected;
      }
    }
  }
}

TEST_F(DataOpsGpuTest, DrawsOfATensorsOwnAreThoseOfTheHost) {
  TensorShape shape;
  shape.extent = {37, 1001};
  shape.pitches = {1003};
  for (const DType dtype : dtypes()) {
    shape.dtype = dtype;
    std::vector<Draw> draws{
        {DrawKind::constant, 1}, {DrawKind::uniform, 0, 1}, {DrawKind::uniform, 1, 1}};
    if (dtype == DType::int32 || dtype == DType::int64) {
      draws.push_back({DrawKind::permutation});
      draws.push_back({DrawKind::offsets, 0, 100'000});
      draws.push_back({DrawKind::offsets, 0, 5});
      draws.push_back({DrawKind::uniform, -2e9, 2e9});
    }
    if (dtype == DType::int64) draws.push_back({DrawKind::uniform, -0x1p53, 0x1p53});
    if (!is_integer(dtype)) draws.push_back({DrawKind::uniform, -0.3, 0.7});
    for (const Draw& draw : draws) {
      const auto device = allocate(shape.bytes());
      std::vector<char> host(static_cast<std::size_t>(shape.bytes()));
      ASSERT_TRUE(ops_->draw(device->address(), dtype, shape.layout(), draw, 9));
      ASSERT_TRUE(host_->draw(reinterpret_cast<DevicePointer>(host.data()), dtype, shape.layout(),
                              draw, 9));
      EXPECT_EQ(download<char>(device->address(), shape.bytes()), host)
          << to_string(dtype) << " " << to_string(draw.kind) << " to " << draw.to;
    }
  }
}

TEST_F(DataOpsGpuTest, WideIntegersAreComparedDigitByDigit) {
  const std::vector<std::int64_t> reference{(std::int64_t{1} << 60) + 1, -5};
  const auto r = allocate(16);
  ASSERT_TRUE(device_->upload(r->address(), std::as_bytes(std::span(reference))));
  const auto mismatches = [&](std::vector<std::int64_t> actual) {
    const auto buffer = allocate(16);
    EXPECT_TRUE(device_->upload(buffer->address(), std::as_bytes(std::span(actual))));
    return ops_->compare(buffer->address(), DType::int64, 2, r->address(), 0, {1, 1})
        .value()
        .mismatches;
  };
  EXPECT_EQ(mismatches(reference), 0);
  EXPECT_EQ(mismatches({std::int64_t{1} << 60, -5}), 1);
}

TEST_F(DataOpsGpuTest, ComparesAsTheHostCompares) {
  constexpr std::int64_t kElements = 70'001;
  std::vector<float> actual(kElements);
  std::vector<float> reference(kElements);
  std::vector<float> magnitude(kElements, 2);
  const auto at = [](const auto& v) { return reinterpret_cast<DevicePointer>(v.data()); };
  ASSERT_TRUE(host_->draw(at(reference), DType::fp32, kElements, {DrawKind::normal}, 1));
  for (std::size_t i = 0; i < actual.size(); ++i) {
    actual[i] = reference[i] + 1e-4F * static_cast<float>(i % 7);
  }
  const ErrorBound bound{1e-3, 1e-3};
  const auto both = [&] {
    const auto a = upload(actual);
    const auto r = upload(reference);
    const auto m = upload(magnitude);
    const auto device = must(
        ops_->compare(a->address(), DType::fp32, kElements, r->address(), m->address(), bound));
    const auto host =
        host_->compare(at(actual), DType::fp32, kElements, at(reference), at(magnitude), bound);
    EXPECT_DOUBLE_EQ(device.max_error, host.value().max_error);
    EXPECT_EQ(device.mismatches, host.value().mismatches);
    EXPECT_EQ(device.elements, host.value().elements);
    EXPECT_EQ(device.first_mismatch, host.value().first_mismatch);
  };
  both();
  actual[69'999] = std::numeric_limits<float>::quiet_NaN();
  both();
  actual[1234] = std::numeric_limits<float>::infinity();
  actual[40'000] += 1;
  both();
}

TEST_F(DataOpsGpuTest, AsksForNanAsTheHostDoes) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> reference{nan, 2, nan, 3};
  const std::vector<float> magnitude(4, 1);
  const auto r = upload(reference);
  const auto m = upload(magnitude);
  for (const DType dtype : dtypes()) {
    if (reference_dtype(dtype) != DType::fp32 || dtype == DType::boolean) continue;
    std::vector<char> actual(static_cast<std::size_t>(bytes_of(4, dtype)));
    const auto buffer = allocate(std::ssize(actual));
    const auto mismatches = [&](const std::vector<double>& values) {
      for (std::int64_t i = 0; i < 4; ++i) {
        store_element(actual.data(), dtype, i, values[static_cast<std::size_t>(i)]);
      }
      EXPECT_TRUE(device_->upload(buffer->address(), std::as_bytes(std::span(actual))));
      const ErrorBound bound{.accumulate_unit = 1e-3, .nan = true};
      const auto device =
          ops_->compare(buffer->address(), dtype, 4, r->address(), m->address(), bound);
      const auto host = host_->compare(reinterpret_cast<DevicePointer>(actual.data()), dtype, 4,
                                       reinterpret_cast<DevicePointer>(reference.data()),
                                       reinterpret_cast<DevicePointer>(magnitude.data()), bound);
      EXPECT_TRUE(device && host);
      EXPECT_EQ(device.value().mismatches, host.value().mismatches) << to_string(dtype);
      EXPECT_EQ(device.value().first_mismatch, host.value().first_mismatch) << to_string(dtype);
      return device.value().mismatches;
    };
    EXPECT_EQ(mismatches({nan, 2, nan, 3}), 0) << to_string(dtype);
    EXPECT_EQ(mismatches({1, 2, 1, 3}), 2) << to_string(dtype);
    EXPECT_EQ(mismatches({nan, nan, nan, 3}), 1) << to_string(dtype);
  }
}

TEST_F(DataOpsGpuTest, RowsThatLieApartAreHandledAsTheHostHandlesThem) {
  TensorShape shape;
  shape.extent = {211, 33};
  shape.pitches = {37};
  for (const DType dtype : dtypes()) {
    shape.dtype = dtype;
    const auto device = allocate(shape.bytes());
    std::vector<char> host(static_cast<std::size_t>(shape.bytes()));
    const auto at_host = reinterpret_cast<DevicePointer>(host.data());
    ASSERT_TRUE(ops_->draw(device->address(), dtype, shape.layout(), {DrawKind::signs}, 9));
    ASSERT_TRUE(host_->draw(at_host, dtype, shape.layout(), {DrawKind::signs}, 9));
    EXPECT_EQ(download<char>(device->address(), shape.bytes()), host) << to_string(dtype);

    std::vector<float> reference(static_cast<std::size_t>(shape.elements()));
    ASSERT_TRUE(host_->draw(reinterpret_cast<DevicePointer>(reference.data()), DType::fp32,
                            shape.elements(), {DrawKind::signs}, 9));
    if (dtype == DType::uint8 || dtype == DType::boolean) {
      for (float& x : reference) x = std::fabs(x);
    }
    const auto uploaded = upload_reference(reference, dtype);
    const auto first = [&] {
      return ops_
          ->compare(device->address(), dtype, shape.layout(), uploaded->address(), 0, {0, 0, true})
          .value()
          .first_mismatch;
    };
    EXPECT_EQ(first(), "") << to_string(dtype);
    const auto damage = [&](std::int64_t place) {
      const std::int64_t size = bytes_of(1, dtype);
      ASSERT_TRUE(
          device_->fill(device->address() + static_cast<DevicePointer>(place * size), 0x2C, size));
    };
    damage(100 * 37 + 5);
    EXPECT_EQ(first(), concat(100 * 37 + 5)) << to_string(dtype);
    damage(70 * 37 + 34);
    EXPECT_EQ(first(), concat(70 * 37 + 34)) << "between rows, " << to_string(dtype);
    ASSERT_TRUE(ops_->fill_gaps(device->address(), dtype, shape.layout()));
    EXPECT_EQ(first(), concat(100 * 37 + 5)) << to_string(dtype);
  }
}

TEST_F(DataOpsGpuTest, EntriesOfEveryDimMayLieApart) {
  TensorShape shape;
  shape.extent = {3, 5, 7, 9};
  shape.pitches = {700, 130, 11};
  for (const DType dtype : dtypes()) {
    shape.dtype = dtype;
    const auto device = allocate(shape.bytes());
    std::vector<char> host(static_cast<std::size_t>(shape.bytes()));
    ASSERT_TRUE(ops_->draw(device->address(), dtype, shape.layout(), {DrawKind::signs}, 9));
    ASSERT_TRUE(host_->draw(reinterpret_cast<DevicePointer>(host.data()), dtype, shape.layout(),
                            {DrawKind::signs}, 9));
    EXPECT_EQ(download<char>(device->address(), shape.bytes()), host) << to_string(dtype);
  }
}

TEST_F(DataOpsGpuTest, AnInfiniteResultMeetsAnInfiniteReference) {
  const float infinity = std::numeric_limits<float>::infinity();
  const auto reference = upload({-infinity, -infinity, infinity, 1});
  const auto mismatches = [&](const std::vector<float>& actual, bool infinite) {
    const auto values = upload(actual);
    ErrorBound bound{1e9, 1e9};
    bound.infinite = infinite;
    return ops_
        ->compare(values->address(), DType::fp32, 4, reference->address(), reference->address(),
                  bound)
        .value()
        .mismatches;
  };
  EXPECT_EQ(mismatches({-infinity, -infinity, infinity, 1}, true), 0);
  EXPECT_EQ(mismatches({-1e30F, infinity, infinity, 1}, true), 2);
  EXPECT_EQ(mismatches({-infinity, -infinity, infinity, -infinity}, true), 1);
  EXPECT_EQ(mismatches({-infinity, -infinity, infinity, 1}, false), 3);
}

TEST_F(DataOpsGpuTest, WhatAnOutputCannotHoldIsComparedAtItsEnd) {
  const auto reference = upload({70000, -1e9F, 60000, 60000});
  const auto magnitude = upload({1, 1, 1, 1});
  const auto mismatches = [&](std::uint16_t first, std::uint16_t second, std::uint16_t third) {
    const std::vector<std::uint16_t> actual{first, second, third, 0x7b53};  // the last 60000
    const auto buffer = allocate(8);
    EXPECT_TRUE(device_->upload(buffer->address(), std::as_bytes(std::span(actual))));
    return ops_
        ->compare(buffer->address(), DType::fp16, 4, reference->address(), magnitude->address(),
                  {1e-3, 0x1p-11})
        .value()
        .mismatches;
  };
  EXPECT_EQ(mismatches(0x7c00, 0xfc00, 0x7b53), 0);
  EXPECT_EQ(mismatches(0xfc00, 0x7c00, 0x7c00), 3);
  EXPECT_EQ(mismatches(0x7e00, 0x7e00, 0x7e00), 3) << "NaN";
}

TEST_F(DataOpsGpuTest, ComparesExactlyInEveryFormat) {
  constexpr std::int64_t kElements = 5'001;
  for (const DType dtype : dtypes()) {
    const auto value = allocate(bytes_of(kElements, dtype));
    const DType of_reference = reference_dtype(dtype);
    const auto reference = allocate(bytes_of(kElements, of_reference));
    // Numbers that every dtype holds.
    const Draw draw{DrawKind::constant, 1};
    ASSERT_TRUE(ops_->draw(value->address(), dtype, kElements, draw, 3));
    ASSERT_TRUE(ops_->draw(reference->address(), of_reference, kElements, draw, 3));
    const auto compare = [&] {
      return ops_->compare(value->address(), dtype, kElements, reference->address(), 0,
                           {0, 0, true});
    };
    const auto same = must(compare());
    EXPECT_EQ(same.mismatches, 0) << to_string(dtype);
    ASSERT_TRUE(device_->fill(value->address() + static_cast<DevicePointer>(bytes_of(70, dtype)),
                              0x2C, bytes_of(1, dtype)));
    EXPECT_EQ(compare().value().first_mismatch, "70") << to_string(dtype);
  }
}

TEST_F(DataOpsGpuTest, HashesAsTheHostHashes) {
  const auto buffer = allocate(100'000);
  ASSERT_TRUE(ops_->draw(buffer->address(), DType::fp32, 25'000, {DrawKind::normal}, 8));
  auto copy = download<std::uint64_t>(buffer->address(), 12'500);
  const auto host = reinterpret_cast<DevicePointer>(copy.data());
  std::vector<MemoryRegion> regions;
  std::vector<MemoryRegion> same;
  for (const auto& [from, bytes] : {std::pair{0, 100'000},
                                    {0, 1},
                                    {3, 4},
                                    {5, 9},
                                    {8, 8},
                                    {7, 1},
                                    {1, 99'998},
                                    {16, 0},
                                    {64, 4096},
                                    {100, 50'001}}) {
    regions.push_back({buffer->address() + static_cast<DevicePointer>(from), bytes});
    same.push_back({host + static_cast<DevicePointer>(from), bytes});
  }
  must(ops_->enqueue_hash(regions));
  ASSERT_TRUE(host_->enqueue_hash(same));
  const auto device_found = ops_->take_findings();
  const auto host_found = host_->take_findings();
  ASSERT_TRUE(device_found && host_found);
  ASSERT_EQ(device_found.value().size(), regions.size());
  for (std::size_t i = 0; i < regions.size(); ++i) {
    EXPECT_EQ(device_found.value()[i].hash, host_found.value()[i].hash) << i;
  }
}

TEST_F(DataOpsGpuTest, IndicesPassThirtyTwoBits) {
  constexpr std::int64_t kElements = (std::int64_t{1} << 32) + 12'345;
  if (device_->profile().memory_bytes < std::int64_t{40} << 30) {
    GTEST_SKIP() << "needs 40 GB of device memory";
  }
  const auto values = allocate(kElements);
  const auto reference = allocate(kElements * 4);
  ASSERT_TRUE(ops_->draw(values->address(), DType::int8, kElements, {DrawKind::small_integers}, 3));
  ASSERT_TRUE(
      ops_->draw(reference->address(), DType::fp32, kElements, {DrawKind::small_integers}, 3));
  const auto tail = download<signed char>(values->address() + kElements - 100, 100);
  const auto expected = download<float>(reference->address() + (kElements - 100) * 4, 100);
  EXPECT_NE(std::count(tail.begin(), tail.end(), 0), 100);
  for (std::size_t i = 0; i < 100; ++i) EXPECT_EQ(static_cast<float>(tail[i]), expected[i]);
  const auto compare = [&] {
    return ops_->compare(values->address(), DType::int8, kElements, reference->address(),
                         reference->address(), {0, 0});
  };
  const auto same = must(compare());
  EXPECT_EQ(same.mismatches, 0);
  ASSERT_TRUE(device_->fill(values->address() + kElements - 1, 100, 1));
  const auto other = must(compare());
  EXPECT_EQ(other.mismatches, 1);
  EXPECT_EQ(other.first_mismatch, concat(kElements - 1));
}

}  // namespace
}  // namespace kernwright
