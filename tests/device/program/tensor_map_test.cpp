#include "device/program/tensor_map.h"

#include <gtest/gtest.h>
#include <optional>

#include "tests/doubles/fake_driver.h"

namespace kernwright {
namespace {

TensorMapPlan matrix() {
  return {.name = "map",
          .tensor = 0,
          .dtype = DType::bf16,
          .dims = {64, 32},
          .strides_bytes = {128},
          .box = {64, 8},
          .swizzle = 128,
          .l2_promotion = 256};
}

TEST(TensorMapTest, PassesThePlanInTheDriversOrder) {
  FakeDriver driver;
  CUtensorMap map;
  EXPECT_TRUE(encode_tensor_map(driver.api(), matrix(), 0x4000, map));
  ASSERT_EQ(driver.encodings.size(), 1U);
  const FakeDriver::Encoding& encoding = driver.encodings.front();
  EXPECT_EQ(encoding.type, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
  EXPECT_EQ(encoding.dims, (std::vector<cuuint64_t>{64, 32}));
  EXPECT_EQ(encoding.strides, (std::vector<cuuint64_t>{128}));
  EXPECT_EQ(encoding.box, (std::vector<cuuint32_t>{64, 8}));
  EXPECT_EQ(encoding.swizzle, CU_TENSOR_MAP_SWIZZLE_128B);
  EXPECT_EQ(encoding.promotion, CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
}

TEST(TensorMapTest, EveryRankFromOneToFive) {
  FakeDriver driver;
  for (std::size_t rank = 1; rank <= 5; ++rank) {
    TensorMapPlan plan = matrix();
    plan.dims.assign(rank, 16);
    plan.box.assign(rank, 16);
    plan.strides_bytes.assign(rank - 1, 256);
    CUtensorMap map;
    EXPECT_TRUE(encode_tensor_map(driver.api(), plan, 0x4000, map)) << rank;
    EXPECT_EQ(driver.encodings.back().dims.size(), rank);
  }
}

TEST(TensorMapTest, BytesStandForFp8) {
  FakeDriver driver;
  TensorMapPlan plan = matrix();
  plan.dtype = DType::fp8_e4m3;
  CUtensorMap map;
  EXPECT_TRUE(encode_tensor_map(driver.api(), plan, 0x4000, map));
  EXPECT_EQ(driver.encodings.back().type, CU_TENSOR_MAP_DATA_TYPE_UINT8);
}

TEST(TensorMapTest, WhatDoesNotExistIsRefusedBeforeTheDriver) {
  FakeDriver driver;
  CUtensorMap map;
  std::vector<TensorMapPlan> plans(5, matrix());
  plans[0].swizzle = 96;
  plans[1].l2_promotion = 32;
  plans[2].dims.clear();
  plans[3].dims.assign(6, 16);
  plans[4].box.pop_back();
  for (const TensorMapPlan& plan : plans) {
    EXPECT_EQ(encode_tensor_map(driver.api(), plan, 0x4000, map).result, CUDA_ERROR_INVALID_VALUE);
  }
  EXPECT_TRUE(driver.encodings.empty());
}

/// The behaviours of a driver with an address.
using Replace = CUresult (*)(CUtensorMap*, void*);

std::optional<std::size_t> address_word(Replace replace) {
  FakeDriver driver;
  DriverApi api = driver.api();
  CUtensorMap map;
  EXPECT_TRUE(encode_tensor_map(api, matrix(), 0x4000, map));
  api.tensor_map_replace_address = replace;
  return find_address_word(api, map);
}

TEST(TensorMapTest, AnAddressIsWrittenByHandOnlyWhereTheDriverWasSeenToWriteIt) {
  EXPECT_EQ(address_word([](CUtensorMap* map, void* address) {
              map->opaque[3] = reinterpret_cast<cuuint64_t>(address);
              return CUDA_SUCCESS;
            }),
            3U);
  EXPECT_EQ(address_word([](CUtensorMap* map, void* address) {
              map->opaque[0] = reinterpret_cast<cuuint64_t>(address) >> 4;
              return CUDA_SUCCESS;
            }),
            std::nullopt)
      << "another form";
  EXPECT_EQ(address_word([](CUtensorMap* map, void* address) {
              map->opaque[0] = reinterpret_cast<cuuint64_t>(address);
              map->opaque[15] ^= map->opaque[0];
              return CUDA_SUCCESS;
            }),
            std::nullopt)
      << "a checksum";
  EXPECT_EQ(address_word([](CUtensorMap*, void*) { return CUDA_ERROR_INVALID_VALUE; }),
            std::nullopt);
  EXPECT_EQ(address_word([](CUtensorMap*, void*) { return CUDA_SUCCESS; }), std::nullopt);
}

}  // namespace
}  // namespace kernwright
