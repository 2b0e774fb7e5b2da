#pragma once
// Adds the sums over parts of k, with SPLIT. The blocks of a cluster have a part of k of the same
// tile each, and each finishes some of the tile's rows of a. They send each other their sums of
// these rows.

#include "layout.cuh"
#include <kernwright/math/vector.cuh>
#include <kernwright/ptx/cluster.cuh>
#include <kernwright/ptx/mbarrier.cuh>

namespace {

// Returns the distance of four sums of this thread among those that a block receives: of block
// `block` of the tile, and quad `quad` of the rows of a that the block finishes, from part `from`.
__device__ __forceinline__ unsigned place_of_part(int from, int block, int quad) {
  return ((from * kBlocks + block) * (kOwnTokens / 8) + quad) * 2048 + threadIdx.x % 128 * 16;
}

// Puts the whole sums of the rows of a that this block finishes into `whole`. Run by all consumers
// after their last stage. Parts are added in a fixed order, so equal inputs give equal bits.
__device__ __forceinline__ void add_parts(Whole& whole, const Acc& acc, Addresses at,
                                          int consumer) {
  const int rank = static_cast<int>(cluster_rank());
  cluster_wait();  // all blocks run, and their barriers are ready
#pragma unroll
  for (int owner = 0; owner < SPLIT; ++owner) {
    const unsigned parts = cluster_address(at.parts(), owner);
    const unsigned received = cluster_address(at.received(), owner);
#pragma unroll
    for (int own = 0; own < kOwn; ++own) {
#pragma unroll
      for (int quad = 0; quad < kOwnTokens / 8; ++quad) {
        const float* const x = &acc[own][(owner * (kOwnTokens / 8) + quad) * 4];
        cluster_store(parts + place_of_part(rank, consumer * kOwn + own, quad),
                      make_float4(x[0], x[1], x[2], x[3]), received);
      }
    }
  }
  mbarrier_wait(at.received(), 0);
  clear(whole);
#pragma unroll 1
  for (int from = 0; from < SPLIT; ++from) {
#pragma unroll
    for (int own = 0; own < kOwn; ++own) {
#pragma unroll
      for (int quad = 0; quad < kOwnTokens / 8; ++quad) {
        const float4 x = load_quad(at.parts() + place_of_part(from, consumer * kOwn + own, quad));
        float* const sum = &whole[own][quad * 4];
        sum[0] += x.x;
        sum[1] += x.y;
        sum[2] += x.z;
        sum[3] += x.w;
      }
    }
  }
}

}  // namespace
