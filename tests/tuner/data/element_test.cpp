#include "tuner/data/element.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>

namespace kernwright {
namespace {

double through(DType dtype, double value) {
  std::array<char, 8> bytes{};
  store_element(bytes.data(), dtype, 0, value);
  return load_element(bytes.data(), dtype, 0);
}

TEST(ElementTest, EveryFp16PatternSurvives) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    auto half = static_cast<std::uint16_t>(bits);
    const double value = load_element(&half, DType::fp16, 0);
    std::uint16_t back = 0;
    store_element(&back, DType::fp16, 0, value);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(load_element(&back, DType::fp16, 0)));
    } else {
      ASSERT_EQ(back, half) << value;
    }
  }
}

TEST(ElementTest, EveryFp8PatternSurvives) {
  for (std::uint32_t bits = 0; bits < 0x100; ++bits) {
    auto byte = static_cast<std::uint8_t>(bits);
    const double value = load_element(&byte, DType::fp8_e4m3, 0);
    std::uint8_t back = 0;
    store_element(&back, DType::fp8_e4m3, 0, value);
    if (std::isnan(value)) {
      EXPECT_EQ(bits & 0x7f, 0x7fU);
    } else {
      ASSERT_EQ(back, byte) << value;
    }
  }
}

TEST(ElementTest, EveryFp8E5m2PatternButInfinitySurvives) {
  for (std::uint32_t bits = 0; bits < 0x100; ++bits) {
    auto byte = static_cast<std::uint8_t>(bits);
    const double value = load_element(&byte, DType::fp8_e5m2, 0);
    std::uint8_t back = 0;
    store_element(&back, DType::fp8_e5m2, 0, value);
    if (std::isnan(value)) {
      EXPECT_GT(bits & 0x7f, 0x7cU);
    } else {
      ASSERT_EQ(back, std::isinf(value) ? byte - 1 : byte) << value;
    }
    const auto half = static_cast<std::uint16_t>(bits << 8);  // it is the upper half of an fp16
    const double same = load_element(&half, DType::fp16, 0);
    EXPECT_TRUE(value == same || (std::isnan(value) && std::isnan(same))) << bits;
  }
}

TEST(ElementTest, IntegersSaturateAndAreZeroForANan) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(through(DType::uint8, -3), 0);
  EXPECT_EQ(through(DType::uint8, 254.6), 255);
  EXPECT_EQ(through(DType::uint8, 1e9), 255);
  EXPECT_EQ(through(DType::boolean, 0.25), 1);
  EXPECT_EQ(through(DType::boolean, -0.0), 0);
  EXPECT_EQ(through(DType::int64, -0x1p53), -0x1p53);
  EXPECT_EQ(through(DType::int64, 1e30), 0x1p63);
  EXPECT_EQ(through(DType::int64, -1e30), -0x1p63);
  for (const DType dtype :
       {DType::int8, DType::int32, DType::int64, DType::uint8, DType::boolean}) {
    EXPECT_EQ(through(dtype, nan), 0) << to_string(dtype);
  }
}

TEST(ElementTest, KnownValues) {
  EXPECT_EQ(through(DType::fp16, 65504), 65504);
  EXPECT_EQ(through(DType::fp16, 0x1p-24), 0x1p-24);
  EXPECT_TRUE(std::isinf(through(DType::fp16, 65520)));
  EXPECT_EQ(through(DType::fp8_e4m3, 1000), 448);
  EXPECT_EQ(through(DType::fp8_e5m2, 1e9), 57344);
  EXPECT_EQ(through(DType::fp8_e5m2, 1.125), 1);
  EXPECT_EQ(through(DType::fp8_e5m2, 0x1p-16), 0x1p-16);
  EXPECT_EQ(through(DType::bf16, -1.5), -1.5);
  EXPECT_EQ(through(DType::int8, 300), 127);
  EXPECT_EQ(through(DType::int32, -7.5), -8);
  EXPECT_EQ(through(DType::fp64, 0.1), 0.1);
}

TEST(ElementTest, RoundsToNearestEven) {
  EXPECT_EQ(through(DType::fp16, 1 + 0x1p-11), 1);
  EXPECT_EQ(through(DType::fp16, 1 + 3 * 0x1p-11), 1 + 2 * 0x1p-10);
  EXPECT_EQ(through(DType::bf16, 1 + 0x1p-8), 1);
  EXPECT_EQ(through(DType::bf16, 1 + 3 * 0x1p-8), 1 + 2 * 0x1p-7);
}

TEST(ElementTest, NanStaysNan) {
  for (const DType dtype :
       {DType::bf16, DType::fp16, DType::fp32, DType::fp64, DType::fp8_e4m3, DType::fp8_e5m2}) {
    EXPECT_TRUE(std::isnan(through(dtype, std::numeric_limits<double>::quiet_NaN())));
  }
}

}  // namespace
}  // namespace kernwright
