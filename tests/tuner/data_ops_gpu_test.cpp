#include <algorithm>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>

#include "support/text.h"
#include "tests/tuner/gpu_world.h"
#include "tuner/element.h"

namespace kernwright {
namespace {

class DataOpsGpuTest : public GpuWorld {
 protected:
  std::vector<DType> dtypes() const {
    std::vector<DType> all{DType::bf16, DType::fp16, DType::fp32,
                           DType::fp64, DType::int8, DType::int32};
    if (device_->profile().sm_arch >= 89) all.push_back(DType::fp8_e4m3);
    return all;
  }
  std::unique_ptr<DeviceBuffer> allocate(std::int64_t bytes) {
    auto buffer = device_->allocate(bytes);
    EXPECT_TRUE(buffer) << buffer.error().message;
    return std::move(buffer).value();
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
    for (const auto distribution : {InputDistribution::normal, InputDistribution::small_integers}) {
      const std::int64_t bytes = kElements * byte_size(dtype);
      const auto buffer = allocate(bytes);
      ASSERT_TRUE(ops_->draw(buffer->address(), dtype, kElements, distribution, 42));
      const auto device = download<char>(buffer->address(), bytes);
      std::vector<char> host(static_cast<std::size_t>(bytes));
      ASSERT_TRUE(host_->draw(reinterpret_cast<DevicePointer>(host.data()), dtype, kElements,
                              distribution, 42));
      // The logarithm and the cosine differ in their last bits, which may move a rounding.
      const double ulp = byte_size(dtype) == 1 ? 0x1p-3 : byte_size(dtype) == 2 ? 0x1p-7 : 1e-5;
      const bool exact = distribution == InputDistribution::small_integers || is_integer(dtype);
      for (std::int64_t i = 0; i < kElements; ++i) {
        const double expected = load_element(host.data(), dtype, i);
        const double drawn = load_element(device.data(), dtype, i);
        ASSERT_LE(std::fabs(drawn - expected), exact ? 0 : ulp * std::fabs(expected) + 1e-5)
            << to_string(dtype) << " " << i << ": " << drawn << " " << expected;
      }
    }
  }
}

TEST_F(DataOpsGpuTest, ComparesAsTheHostCompares) {
  constexpr std::int64_t kElements = 70'001;
  std::vector<float> actual(kElements);
  std::vector<float> reference(kElements);
  std::vector<float> magnitude(kElements, 2);
  const auto at = [](const auto& v) { return reinterpret_cast<DevicePointer>(v.data()); };
  ASSERT_TRUE(host_->draw(at(reference), DType::fp32, kElements, InputDistribution::normal, 1));
  for (std::size_t i = 0; i < actual.size(); ++i) {
    actual[i] = reference[i] + 1e-4F * static_cast<float>(i % 7);
  }
  const ErrorBound bound{1e-3, 1e-3};
  const auto both = [&] {
    const auto a = upload(actual);
    const auto r = upload(reference);
    const auto m = upload(magnitude);
    const auto device =
        ops_->compare(a->address(), DType::fp32, kElements, r->address(), m->address(), bound);
    ASSERT_TRUE(device) << device.error().message;
    const auto host =
        host_->compare(at(actual), DType::fp32, kElements, at(reference), at(magnitude), bound);
    EXPECT_DOUBLE_EQ(device.value().max_error, host.value().max_error);
    EXPECT_EQ(device.value().mismatches, host.value().mismatches);
    EXPECT_EQ(device.value().elements, host.value().elements);
    EXPECT_EQ(device.value().first_mismatch, host.value().first_mismatch);
  };
  both();
  actual[69'999] = std::numeric_limits<float>::quiet_NaN();
  both();
  actual[1234] = std::numeric_limits<float>::infinity();
  actual[40'000] += 1;
  both();
}

TEST_F(DataOpsGpuTest, IndicesPassThirtyTwoBits) {
  constexpr std::int64_t kElements = (std::int64_t{1} << 32) + 12'345;
  if (device_->profile().memory_bytes < std::int64_t{40} << 30) {
    GTEST_SKIP() << "needs 40 GB of device memory";
  }
  const auto values = allocate(kElements);
  const auto reference = allocate(kElements * 4);
  ASSERT_TRUE(
      ops_->draw(values->address(), DType::int8, kElements, InputDistribution::small_integers, 3));
  ASSERT_TRUE(ops_->draw(reference->address(), DType::fp32, kElements,
                         InputDistribution::small_integers, 3));
  const auto tail = download<signed char>(values->address() + kElements - 100, 100);
  const auto expected = download<float>(reference->address() + (kElements - 100) * 4, 100);
  EXPECT_NE(std::count(tail.begin(), tail.end(), 0), 100);
  for (std::size_t i = 0; i < 100; ++i) EXPECT_EQ(static_cast<float>(tail[i]), expected[i]);
  const auto compare = [&] {
    return ops_->compare(values->address(), DType::int8, kElements, reference->address(),
                         reference->address(), {0, 0});
  };
  const auto same = compare();
  ASSERT_TRUE(same) << same.error().message;
  EXPECT_EQ(same.value().mismatches, 0);
  ASSERT_TRUE(device_->fill(values->address() + kElements - 1, 100, 1));
  const auto other = compare();
  ASSERT_TRUE(other);
  EXPECT_EQ(other.value().mismatches, 1);
  EXPECT_EQ(other.value().first_mismatch, concat(kElements - 1));
}

}  // namespace
}  // namespace kernwright
