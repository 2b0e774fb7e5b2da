// D[m, n] = A[m, k] * B[n, k]^T, row-major, for few rows of A or of B (Hopper). Operands have 16 or
// 8 bits or are fp32 taken as tf32, and sums are accumulated in fp32, or for int8 in int32. In
// this file `a` is the operand with few rows, m of them, and `b` the other. With TRANSPOSED these
// are the problem's b and a, and D is [n, m]. With b_layout=kn, which is never TRANSPOSED, b is [k,
// n]. Rows of b and D begin ldb and ldd elements apart.
//
// The product is computed transposed: rows of b, of which there are many, take the 64 rows of
// wgmma, and a is the other operand, of BM rows. Nearly all of the time goes into reading b, so the
// amount of it that is in flight counts: one warp fills a deep ring by TMA, BN / 64 warpgroups
// multiply from it, and several blocks share a multiprocessor.
//
// SPLIT   The blocks of a cluster take a slice of k each. Every block owns a part of the tile. The
//         others send their sums of that part straight into its shared memory, and it adds them in
//         the order of the ranks. When a block exits, nobody writes to it any more.
// SLICES  If that leaves multiprocessors idle, several clusters or single blocks take a part of k
//         each and store their sums to memory. A launch after this one, matmul_finish, adds them in
//         the order of the slices.
// CM      The blocks of a cluster take neighbouring tiles along the few rows. They load the rows of
//         b that they share in parts, and multicast them.
// PROMOTED  The tensor cores keep about 14 bits of a sum of fp8 products. So they sum 128 of k at a
//         time, and these sums are added in fp32.
// scaling With scales of blocks, a second warp copies a stage's scales, and the sums of each 128 of
//         k are multiplied by them on their way. Scales of rows belong to the epilogue.
// gate    A stage holds BN rows of b's gates and the same rows of its other half, and a consumer
//         has 64 of either. A unit of its sums is then two float4 that make one unit of elements.
//
// The products of a batch follow each other as more rows of all tensors, and take a layer of the
// grid each.
//
// TMA cannot address rows that do not start at multiples of 16 bytes. A launch before this one,
// matmul_pad, copies operands with such rows.

#include "layout.cuh"
#include "mainloop.cuh"
#include "parts.cuh"
#include "producer.cuh"
#include "result.cuh"
#include <kernwright/config.cuh>
#include <kernwright/matmul/pad_rows.cuh>
#include <kernwright/ptx/cluster.cuh>
#include <kernwright/ptx/mbarrier.cuh>
#include <kernwright/ptx/programmatic.cuh>
#include <kernwright/ptx/tma.cuh>
#include <kernwright/ptx/warp_roles.cuh>
#include <kernwright/tile/frame.cuh>

extern "C" __global__ void __launch_bounds__(THREADS) matmul_skinny(KW_PARAMETERS(matmul_skinny)) {
  extern __shared__ unsigned char memory[];
  const Addresses at{aligned_shared(memory)};
  const int warp = warp_number();
  const bool producer = warp == CONSUMER_THREADS / 32;
  TilePipeline pipeline(at.barriers());
  const Place place(A_FIRST != 0);
  const int rank = blockIdx.x % SPLIT, part = place.slice * SPLIT + rank;
  const Tile tile(
      result_of(d, alpha, bias, beta, residual, m, n, ldd, d_k, d_v, {scale_a, scale_b}),
      place.tile_a, place.tile_b, place.tiles_a, place.tiles_b);
  const int steps = (k + DEPTH - 1) / DEPTH;
  const int first = part * steps / kParts, last = (part + 1) * steps / kParts;

  if (producer) {
    if (elect_one()) {
      tma_prefetch(map_b);
      tma_prefetch(map_a);
      pipeline.init(CONSUMER_THREADS / 32, kScaled ? 1 + kScaleWriters : 1);
      mbarrier_init(at.received(), 1);
      mbarrier_init_fence();
      if constexpr (SPLIT > 1) mbarrier_arrive_expect(at.received(), PARTIAL_BYTES);
    }
    __syncwarp();
    named_barrier_arrive(1, THREADS);
    if constexpr (SPLIT * CM > 1) cluster_arrive_relaxed();
    if constexpr (CM > 1) cluster_wait();
    if (elect_one()) {
      produce(map_a, map_b, pipeline, at, tile, {m, n, k}, first, last, b_once != 0,
              reads_operands(alpha));
    }
    __syncwarp();
    if constexpr (SPLIT > 1) cluster_wait();
    cluster_sync_relaxed<SUMS_IN_RING>();
  } else if (kScaled && warp > CONSUMER_THREADS / 32) {
    named_barrier_sync(1, THREADS);
    cluster_sync_relaxed<(SPLIT * CM > 1)>();
    const ScaleTensors scales{scale_a, scale_b, m, n, lds, (k + kScaleBlock - 1) / kScaleBlock};
    produce_scales(scales, pipeline, at, tile, first, last);
    cluster_sync_relaxed<SUMS_IN_RING>();
  } else {
    prefetch_stages(b, k, ldb, tile.row_b, n, first, last);
    named_barrier_sync(1, THREADS);
    cluster_sync_relaxed<(SPLIT * CM > 1)>();  // all blocks run, and their barriers are ready
    if constexpr (SLICES == 1) {
      tile.d.prefetch<BM, BN, CONSUMER_THREADS>(threadIdx.x, tile.row_a, tile.row_b);
    }
    Acc acc;
    consume(acc, pipeline, at, first, last);
    cluster_sync_relaxed<SUMS_IN_RING>();  // no block of the cluster reads its ring any more
    const auto deliver = [&](int index, unsigned thread, const Unit& unit) {
      if constexpr (SLICES == 1) {
        store(tile, index, thread, unit);
      } else {
#pragma unroll
        for (int half = 0; half < STACK; ++half) {
          slice_sums(slices, tile, place.slice, half, index * CONSUMER_THREADS + thread) =
              unit.sums[half];
        }
      }
    };
    if constexpr (SPLIT > 1) {
      reduce(acc, at, rank, deliver);
    } else if constexpr (kStaged) {
      store_staged<out_t>(tile, acc, at);
    } else {
#pragma unroll
      for (int i = 0; i < kFragments; ++i) deliver(i, threadIdx.x, unit_of(acc, i));
    }
  }
}

// Adds the sums of the slices and stores D. Each thread has one unit of a tile.
extern "C" __global__ void __launch_bounds__(kFinishThreads)
    matmul_finish(KW_PARAMETERS(matmul_finish)) {
  constexpr int kBlocks = kUnits / kFinishThreads;  // of a tile
  release_next_kernel();
  await_previous_kernel();
  const int tile_a = blockIdx.y, tile_b = blockIdx.x / kBlocks, tiles_b = gridDim.x / kBlocks;
  const Tile tile(
      result_of(d, alpha, bias, beta, residual, FEW, MANY, ldd, d_k, d_v, {scale_a, scale_b}),
      tile_a, tile_b, gridDim.y, tiles_b);
  const unsigned unit = blockIdx.x % kBlocks * kFinishThreads + threadIdx.x;
  Unit whole;
#pragma unroll
  for (int half = 0; half < STACK; ++half) {
    float4& sum = whole.sums[half];
    sum = slice_sums(slices, tile, 0, half, unit);
#pragma unroll
    for (int slice = 1; slice < SLICES; ++slice) {
      add(sum, slice_sums(slices, tile, slice, half, unit));
    }
  }
  store(tile, unit / CONSUMER_THREADS, unit % CONSUMER_THREADS, whole);
}
