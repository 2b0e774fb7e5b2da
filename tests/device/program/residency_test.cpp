#include "device/program/residency.h"

#include <gtest/gtest.h>

namespace kernwright {
namespace {

/// An H200.
constexpr Multiprocessors kGpu{.count = 132,
                               .blocks = 32,
                               .threads = 2'048,
                               .registers = 65'536,
                               .smem_bytes = 233'472,
                               .reserved_smem_bytes = 1'024};

BlockDemand demand(std::int64_t blocks, std::int64_t threads, std::int64_t registers,
                   std::int64_t smem_bytes) {
  return {.blocks = blocks, .threads = threads, .registers = registers, .smem_bytes = smem_bytes};
}

TEST(ResidencyTest, ABlockFindsRoomWhereAllOfItsDemandsDo) {
  const BlockDemand ahead = demand(132, 256, 64, 100'000);
  EXPECT_TRUE(fits_beside(ahead, demand(132, 256, 64, 100'000), kGpu));
  EXPECT_TRUE(fits_beside(ahead, demand(132, 256, 64, 131'424), kGpu)) << "to the last byte";
  EXPECT_FALSE(fits_beside(ahead, demand(132, 256, 64, 131'425), kGpu));
  EXPECT_TRUE(fits_beside(demand(132, 1'024, 32, 0), demand(1, 1'024, 32, 0), kGpu));
  EXPECT_FALSE(fits_beside(demand(132, 1'024, 32, 0), demand(1, 1'025, 32, 0), kGpu));
  EXPECT_TRUE(fits_beside(demand(132, 256, 128, 0), demand(1, 256, 128, 0), kGpu));
  EXPECT_FALSE(fits_beside(demand(132, 256, 128, 0), demand(1, 256, 129, 0), kGpu))
      << "a warp gets registers by 256: 136 for each thread";
}

TEST(ResidencyTest, AheadLieAsManyBlocksAsFitAndAsThereAre) {
  const BlockDemand next = demand(1, 32, 32, 0);
  EXPECT_TRUE(fits_beside(demand(132, 1'024, 32, 0), next, kGpu));
  EXPECT_TRUE(fits_beside(demand(133, 1'024, 31, 0), demand(1, 0, 0, 0), kGpu));
  EXPECT_FALSE(fits_beside(demand(133, 1'024, 32, 0), next, kGpu)) << "some have two";
  EXPECT_TRUE(fits_beside(demand(10'000, 900, 32, 0), next, kGpu)) << "two fit, and leave room";
  EXPECT_FALSE(fits_beside(demand(10'000, 32, 32, 0), next, kGpu)) << "no more blocks";
}

TEST(ResidencyTest, NothingIsKnownToFitOnAGpuThatSaysNothing) {
  EXPECT_FALSE(fits_beside(demand(1, 32, 32, 0), demand(1, 32, 32, 0), {}));
}

}  // namespace
}  // namespace kernwright
