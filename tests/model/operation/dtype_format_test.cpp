#include "model/operation/dtype_format.h"

#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>
#include <iterator>
#include <limits>

namespace kernwright {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(DTypeFormatTest, TakesWhatADTypeIsCalledElsewhere) {
  for (const char* name : {"bf16", "BF16", "bfloat16"}) EXPECT_EQ(dtype_meant(name), DType::bf16);
  for (const char* name : {"fp16", "float16", "half", "Half"}) {
    EXPECT_EQ(dtype_meant(name), DType::fp16) << name;
  }
  for (const char* name : {"fp32", "float32", "float"}) EXPECT_EQ(dtype_meant(name), DType::fp32);
  EXPECT_EQ(dtype_meant("float8_e4m3fn"), DType::fp8_e4m3);
  EXPECT_EQ(dtype_meant("fp8"), std::nullopt) << "there are several";
  EXPECT_EQ(dtype_meant("int9"), std::nullopt);
}

TEST(DTypeFormatTest, FilesHaveTheOwnSpellingAlone) {
  EXPECT_EQ(parse_dtype("bfloat16"), std::nullopt);
  EXPECT_EQ(parse_dtype("BF16"), std::nullopt);
}

TEST(DTypeFormatTest, EveryPatternOfANarrowFormatSurvives) {
  for (const DType dtype : kDTypes) {
    if (dtype_bits(dtype) > 16 || dtype == DType::boolean) continue;
    for (std::uint64_t bits = 0; bits < std::uint64_t{1} << dtype_bits(dtype); ++bits) {
      const double value = decode(dtype, bits);
      const std::uint64_t back = encode(dtype, value);
      if (std::isnan(value)) {
        ASSERT_TRUE(std::isnan(decode(dtype, back))) << to_string(dtype) << ' ' << bits;
      } else if (dtype == DType::fp8_e5m2 && std::isinf(value)) {
        ASSERT_EQ(back, bits - 1) << "it saturates";
      } else {
        ASSERT_EQ(back, bits) << to_string(dtype) << ' ' << value;
      }
    }
  }
}

TEST(DTypeFormatTest, AnE5m2IsTheUpperHalfOfAnFp16) {
  for (std::uint64_t bits = 0; bits < 0x100; ++bits) {
    const double value = decode(DType::fp8_e5m2, bits);
    const double same = decode(DType::fp16, bits << 8);
    EXPECT_TRUE(value == same || (std::isnan(value) && std::isnan(same))) << bits;
  }
}

TEST(DTypeFormatTest, LimitsOfEveryFormat) {
  struct Row {
    DType dtype;
    double largest, floor, end, unit, integers;
  };
  const Row rows[] = {{DType::bf16, 0x1p127, 0x1p-126, kInfinity, 0x1p-8, 0x1p8},
                      {DType::fp16, 65504, 0x1p-24, 0x1p16, 0x1p-11, 0x1p11},
                      {DType::fp32, 0x1p127, 0x1p-126, kInfinity, 0x1p-24, 0x1p24},
                      {DType::fp64, 0x1p127, 0x1p-1022, kInfinity, 0x1p-24, 0x1p24},
                      {DType::fp8_e4m3, 448, 0x1p-9, 448, 0x1p-4, 0x1p4},
                      {DType::fp8_e5m2, 57344, 0x1p-16, 57344, 0x1p-3, 0x1p3},
                      {DType::int8, 127, 0.5, kInfinity, 0, 127},
                      {DType::int32, 0x7fffffff, 0.5, kInfinity, 0, 0x7fffffff},
                      {DType::int64, 0x1p53, 0.5, kInfinity, 0, 0x1p53},
                      {DType::uint8, 255, 0.5, kInfinity, 0, 255},
                      {DType::boolean, 1, 0.5, kInfinity, 0, 1}};
  ASSERT_EQ(std::size(rows), std::size(kDTypes));
  for (const Row& row : rows) {
    EXPECT_EQ(largest(row.dtype), row.largest) << to_string(row.dtype);
    EXPECT_EQ(error_floor(row.dtype), row.floor) << to_string(row.dtype);
    EXPECT_EQ(range_end(row.dtype), row.end) << to_string(row.dtype);
    EXPECT_EQ(rounding_unit(row.dtype), row.unit) << to_string(row.dtype);
    EXPECT_EQ(exact_integers(row.dtype), row.integers) << to_string(row.dtype);
  }
}

TEST(DTypeFormatTest, RoundsToNearestEven) {
  EXPECT_EQ(encode(DType::bf16, 1.0), 0x3f80U);
  EXPECT_EQ(encode(DType::bf16, 1.0 + 1.0 / 256), 0x3f80U);  // tie, to even
  EXPECT_EQ(encode(DType::bf16, 1.0 + 3.0 / 256), 0x3f82U);  // tie, to even
  EXPECT_EQ(encode(DType::bf16, 1.0 + 1.1 / 256), 0x3f81U);
  EXPECT_EQ(encode(DType::fp16, -2.5), 0xc100U);
  EXPECT_EQ(encode(DType::fp16, 0.1), 0x2e66U);
  EXPECT_EQ(encode(DType::fp8_e4m3, 1.0), 0x38U);
  EXPECT_EQ(encode(DType::fp8_e4m3, -0.3), 0xaaU);  // -0.3125
}

TEST(DTypeFormatTest, CarriesIntoTheExponentAndSubnormals) {
  EXPECT_EQ(encode(DType::bf16, 1.999), 0x4000U);
  EXPECT_EQ(encode(DType::fp16, 0x1p-24), 0x0001U);
  EXPECT_EQ(encode(DType::fp16, 0x1p-25), 0x0000U);
  EXPECT_EQ(encode(DType::fp16, 1023.5 * 0x1p-24), 0x0400U);
  EXPECT_EQ(encode(DType::fp8_e4m3, 0x1p-9), 0x01U);
  EXPECT_EQ(encode(DType::fp16, -0.0), 0x8000U);
}

TEST(DTypeFormatTest, EndsOfTheRange) {
  EXPECT_EQ(encode(DType::fp16, 65504), 0x7bffU);
  EXPECT_EQ(encode(DType::fp16, 65519), 0x7bffU);
  EXPECT_EQ(encode(DType::fp16, 65520), 0x7c00U);
  EXPECT_EQ(encode(DType::bf16, -1e300), 0xff80U);
  EXPECT_EQ(encode(DType::bf16, kInfinity), 0x7f80U);
  EXPECT_EQ(encode(DType::fp8_e4m3, 448), 0x7eU);
  EXPECT_EQ(encode(DType::fp8_e4m3, 1e6), 0x7eU);  // saturates
  EXPECT_EQ(encode(DType::fp8_e4m3, -kInfinity), 0xfeU);
  EXPECT_EQ(encode(DType::fp8_e5m2, 57344), 0x7bU);
  EXPECT_EQ(encode(DType::fp8_e5m2, -1e9), 0xfbU);
  EXPECT_EQ(encode(DType::fp8_e5m2, 1.0), 0x3cU);
  EXPECT_EQ(encode(DType::fp16, std::numeric_limits<double>::quiet_NaN()), 0x7fffU);
}

TEST(DTypeFormatTest, WholeNumbersAndWideFloats) {
  EXPECT_EQ(encode(DType::fp32, -1.5), 0xbfc00000U);
  EXPECT_EQ(encode(DType::fp64, 1.0), 0x3ff0000000000000U);
  EXPECT_EQ(encode(DType::int32, -2), 0xfffffffeU);
  EXPECT_EQ(encode(DType::int32, 1e12), 0x7fffffffU);
  EXPECT_EQ(encode(DType::int8, -300), 0x80U);
  EXPECT_EQ(encode(DType::int8, 2.5), 2U);
  EXPECT_EQ(encode(DType::int64, -2), 0xfffffffffffffffeU);
  EXPECT_EQ(encode(DType::int64, 0x1p53), 0x20000000000000U);
  EXPECT_EQ(encode(DType::int64, 1e30), 0x7fffffffffffffffU);
  EXPECT_EQ(encode(DType::uint8, -1), 0U);
  EXPECT_EQ(encode(DType::uint8, 300), 0xffU);
  EXPECT_EQ(encode(DType::boolean, -0.5), 1U);
  EXPECT_EQ(encode(DType::boolean, 0), 0U);
  for (const DType dtype : {DType::int8, DType::int64, DType::uint8, DType::boolean}) {
    EXPECT_EQ(encode(dtype, std::numeric_limits<double>::quiet_NaN()), 0U);
  }
}

}  // namespace
}  // namespace kernwright
