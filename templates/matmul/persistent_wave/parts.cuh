#pragma once
// Adds the sums over parts of k to the sums of a tile, with SPLIT. The blocks of a cluster that
// share a tile hold sums over a part of k each, and the same warp of each holds the same rows. Rows
// belong to the block whose part is the warp's number modulo SPLIT. The others send it their sums.

#include "layout.cuh"
#include <kernwright/math/vector.cuh>
#include <kernwright/ptx/cluster.cuh>
#include <kernwright/ptx/mbarrier.cuh>

namespace {

// Adds the parts of all blocks of a tile. Run by all consumers, once they have multiplied all of
// their steps. Warp `warp` of the consumers gets the whole sums of its rows if they are this
// block's; otherwise the result is false. Parts are added in a fixed order, so equal inputs give
// equal bits.
__device__ __forceinline__ bool add_parts(Acc& d, Addresses at, int warp) {
  constexpr int kQuads = BN / 8;  // of a thread and a block of 64 rows
  const int rank = cluster_rank(), part = rank / kCluster, owner = warp % SPLIT;
  const auto place = [&](int from, int block, int quad) {
    return (((warp / SPLIT * (SPLIT - 1) + from) * kBlocks + block) * kQuads + quad) * 512 +
           threadIdx.x % 32 * 16;
  };
  cluster_sync_relaxed();  // no block of the cluster reads its ring any more
  if (part != owner) {
    const int target = rank + (owner - part) * kCluster;
    const unsigned parts = cluster_address(at.parts(), target);
    const unsigned received = cluster_address(at.received(), target);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (int quad = 0; quad < kQuads; ++quad) {
        const float* const x = &d[block][4 * quad];
        cluster_store(parts + place(part - (part > owner), block, quad),
                      make_float4(x[0], x[1], x[2], x[3]), received);
      }
    }
    return false;
  }
  mbarrier_wait(at.received(), 0);
#pragma unroll 1
  for (int from = 0; from < SPLIT - 1; ++from) {  // unrolled it spills beside 72 sums and more
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (int quad = 0; quad < kQuads; ++quad) {
        const float4 x = load_quad(at.parts() + place(from, block, quad));
        float* const sum = &d[block][4 * quad];
        sum[0] += x.x;
        sum[1] += x.y;
        sum[2] += x.z;
        sum[3] += x.w;
      }
    }
  }
  return true;
}

}  // namespace
