#include "device/program/scalar_bits.h"

#include <gtest/gtest.h>
#include <limits>

namespace kernwright {
namespace {

TEST(ScalarBitsTest, RoundsToNearestEven) {
  EXPECT_EQ(scalar_bits(DType::bf16, 1.0), 0x3f80U);
  EXPECT_EQ(scalar_bits(DType::bf16, 1.0 + 1.0 / 256), 0x3f80U);  // tie, to even
  EXPECT_EQ(scalar_bits(DType::bf16, 1.0 + 3.0 / 256), 0x3f82U);  // tie, to even
  EXPECT_EQ(scalar_bits(DType::bf16, 1.0 + 1.1 / 256), 0x3f81U);
  EXPECT_EQ(scalar_bits(DType::fp16, -2.5), 0xc100U);
  EXPECT_EQ(scalar_bits(DType::fp16, 0.1), 0x2e66U);
  EXPECT_EQ(scalar_bits(DType::fp8_e4m3, 1.0), 0x38U);
  EXPECT_EQ(scalar_bits(DType::fp8_e4m3, -0.3), 0xaaU);  // -0.3125
}

TEST(ScalarBitsTest, CarriesIntoTheExponentAndSubnormals) {
  EXPECT_EQ(scalar_bits(DType::bf16, 1.999), 0x4000U);
  EXPECT_EQ(scalar_bits(DType::fp16, 0x1p-24), 0x0001U);
  EXPECT_EQ(scalar_bits(DType::fp16, 0x1p-25), 0x0000U);
  EXPECT_EQ(scalar_bits(DType::fp16, 1023.5 * 0x1p-24), 0x0400U);
  EXPECT_EQ(scalar_bits(DType::fp8_e4m3, 0x1p-9), 0x01U);
  EXPECT_EQ(scalar_bits(DType::fp16, -0.0), 0x8000U);
}

TEST(ScalarBitsTest, EndsOfTheRange) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(scalar_bits(DType::fp16, 65504), 0x7bffU);
  EXPECT_EQ(scalar_bits(DType::fp16, 65519), 0x7bffU);
  EXPECT_EQ(scalar_bits(DType::fp16, 65520), 0x7c00U);
  EXPECT_EQ(scalar_bits(DType::bf16, -1e300), 0xff80U);
  EXPECT_EQ(scalar_bits(DType::bf16, kInfinity), 0x7f80U);
  EXPECT_EQ(scalar_bits(DType::fp8_e4m3, 448), 0x7eU);
  EXPECT_EQ(scalar_bits(DType::fp8_e4m3, 1e6), 0x7eU);  // saturates
  EXPECT_EQ(scalar_bits(DType::fp8_e4m3, -kInfinity), 0xfeU);
  EXPECT_EQ(scalar_bits(DType::fp8_e5m2, 57344), 0x7bU);
  EXPECT_EQ(scalar_bits(DType::fp8_e5m2, -1e9), 0xfbU);
  EXPECT_EQ(scalar_bits(DType::fp8_e5m2, 1.0), 0x3cU);
  EXPECT_EQ(scalar_bits(DType::fp16, std::numeric_limits<double>::quiet_NaN()), 0x7e00U);
}

TEST(ScalarBitsTest, WholeNumbersAndWideFloats) {
  EXPECT_EQ(scalar_bits(DType::fp32, -1.5), 0xbfc00000U);
  EXPECT_EQ(scalar_bits(DType::fp64, 1.0), 0x3ff0000000000000U);
  EXPECT_EQ(scalar_bits(DType::int32, -2), 0xfffffffeU);
  EXPECT_EQ(scalar_bits(DType::int32, 1e12), 0x7fffffffU);
  EXPECT_EQ(scalar_bits(DType::int8, -300), 0x80U);
  EXPECT_EQ(scalar_bits(DType::int8, 2.5), 2U);
  EXPECT_EQ(scalar_bits(DType::int64, -2), 0xfffffffffffffffeU);
  EXPECT_EQ(scalar_bits(DType::int64, 0x1p53), 0x20000000000000U);
  EXPECT_EQ(scalar_bits(DType::int64, 1e30), 0x7fffffffffffffffU);
  EXPECT_EQ(scalar_bits(DType::uint8, -1), 0U);
  EXPECT_EQ(scalar_bits(DType::uint8, 300), 0xffU);
  EXPECT_EQ(scalar_bits(DType::boolean, -0.5), 1U);
  EXPECT_EQ(scalar_bits(DType::boolean, 0), 0U);
  for (const DType dtype : {DType::int8, DType::int64, DType::uint8, DType::boolean}) {
    EXPECT_EQ(scalar_bits(dtype, std::numeric_limits<double>::quiet_NaN()), 0U);
  }
}

}  // namespace
}  // namespace kernwright
