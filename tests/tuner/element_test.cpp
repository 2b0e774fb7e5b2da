#include "tuner/element.h"

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

TEST(ElementTest, KnownValues) {
  EXPECT_EQ(through(DType::fp16, 65504), 65504);
  EXPECT_EQ(through(DType::fp16, 0x1p-24), 0x1p-24);
  EXPECT_TRUE(std::isinf(through(DType::fp16, 65520)));
  EXPECT_EQ(through(DType::fp8_e4m3, 1000), 448);
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
  for (const DType dtype : {DType::bf16, DType::fp16, DType::fp32, DType::fp64, DType::fp8_e4m3}) {
    EXPECT_TRUE(std::isnan(through(dtype, std::numeric_limits<double>::quiet_NaN())));
  }
}

}  // namespace
}  // namespace kernwright
