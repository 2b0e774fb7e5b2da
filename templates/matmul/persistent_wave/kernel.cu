// D[m, n] = A[m, k] * B[n, k]^T, or with b_layout=kn A[m, k] * B[k, n], row-major, operands of 16
// or 8 bits or fp32 taken as tf32, a result of 16 bits or fp32, accumulated in fp32 (Hopper).
//
// One warpgroup feeds a ring of shared-memory stages by TMA, the others multiply from it with
// wgmma, TEAM of them a tile, BM / TEAM rows each. A cluster of CM x CN blocks takes neighbouring
// tiles; what its blocks share is loaded once, in slices or, where B makes none, stage by stage in
// turns, and multicast. Clusters walk the tiles in steps of the grid: as many as fit the device
// (persistent), or one per tile.
//
// The epilogue belongs to the warp: its 16 rows of D, rounded, go out in chunks of CHUNK columns
// through its own staging. With OVERLAP the rounded tile stays in registers and leaves during the
// first k steps of the next one, so that the tensor cores do not wait for it. LATE, its sums stay
// and are activated or gated there too, a piece a step. A block's last tile leaves through the
// ring, which nothing will fill again. The bias and the residual of a tile come through the ring
// too, behind its operands, so that they are there when its sums are.
//
// PINGPONG, a consumer has all rows of a tile, and two of them take turns: while one ends its tile
// the other multiplies the next, so that the tensor cores do not wait at all.
//
// Of fp8 products the tensor cores keep about 14 bits of a sum. PROMOTED, a stage's are summed
// there and then added to sums in fp32: one warpgroup adds while the others multiply.
//
// Gated, a stage holds BN / 2 rows of B's gates and the same rows of its other half: each consumer
// thread has both sums of an element in its accumulators, and COLUMNS = BN / 2 leave a tile.
//
// Products of a batch lie one behind the other, as more rows of all tensors, and so do their tiles
// in the schedule.
//
// Rows that do not start at multiples of 16 bytes are beyond TMA. Such operands are copied by a
// launch in front, matmul_pad; such rows of D are stored element by element from the staging.

#include "epilogue.cuh"
#include "layout.cuh"
#include "mainloop.cuh"
#include <kernwright/config.cuh>
#include <kernwright/matmul/pad_rows.cuh>
#include <kernwright/ptx/cluster.cuh>
#include <kernwright/ptx/mbarrier.cuh>
#include <kernwright/ptx/programmatic.cuh>
#include <kernwright/ptx/tma.cuh>
#include <kernwright/ptx/warp_roles.cuh>

namespace {

// The first of so many rows of a tensor that are the tile's product's.
__device__ __forceinline__ int first_of(const Schedule& schedule, int rows) {
  return batch == 1 ? 0 : schedule.product() * rows;
}

// Loads this block's share of a stage of operands: its slice of A, and of B its slice or, where
// the blocks that share B take turns, all of it or nothing.
__device__ __forceinline__ void load_operands(const TensorMap& map_a, const TensorMap& map_b,
                                              const Addends& addends, const Schedule& schedule,
                                              const TilePipeline& pipeline, Addresses at, int k,
                                              int step, bool b_once) {
  constexpr unsigned kColumnRanks = (1u << CM) - 1;  // ranks m + CM * n of one n, shifted
  constexpr unsigned kRowRanks = ((1u << kCluster) - 1) / kColumnRanks;  // of one m: 1 + 2^CM + ...
  constexpr int kSliceB = BN / SLICES;
  constexpr int kSlicesOfHalf = SLICES / STACK;
  const int rank_m = schedule.rank_m(), rank_n = schedule.rank_n();
  const int row_a = first_of(schedule, addends.m) + schedule.row() + rank_n * (BM / CN);
  const int first_b = kMajorB == Major::k ? first_of(schedule, STACK * addends.n) : 0;
  const int first_k = kMajorB == Major::k ? 0 : first_of(schedule, k);
  const bool reads = reads_operands(addends.alpha);
  const int stage = pipeline.stage();
  const unsigned full = pipeline.full();
#pragma unroll
  for (int box = 0; box < kBoxes; ++box) {
    const int x = reads ? step * DEPTH + box * kBoxK : kNowhere;
    tma_load_for<CN>(at.a(stage) + (box * BM + rank_n * (BM / CN)) * kRowBytes, map_a, x, row_a,
                     full, kRowRanks << rank_m, false);
    if constexpr (kMajorB == Major::k) {
      if (kTurns && step % CM != rank_m) continue;
#pragma unroll
      for (int i = 0; i < SLICES; i += kTurns ? 1 : CM) {
        const int slice = kTurns ? i : rank_m + i;
        const int row_b = first_b + schedule.column() + slice / kSlicesOfHalf * addends.n +
                          slice % kSlicesOfHalf * kSliceB;
        tma_load_for<CM>(at.b(stage) + (box * BN + slice * kSliceB) * kRowBytes, map_b, x, row_b,
                         full, kColumnRanks << (rank_n * CM), b_once);
      }
    }
  }
  if constexpr (kMajorB == Major::mn) {
    constexpr int kSlice = DEPTH / CM;
#pragma unroll
    for (int block = 0; block < BN / 64; ++block) {
      const int half = block * 64 / COLUMNS;
      const int column_b = schedule.column() + block * 64 + half * (addends.n - COLUMNS);
      const int row_b = reads ? first_k + step * DEPTH + rank_m * kSlice : kNowhere;
      tma_load_for<CM>(at.b(stage) + (block * DEPTH + rank_m * kSlice) * kRowBytes, map_b, column_b,
                       row_b, full, kColumnRanks << (rank_n * CM), b_once);
    }
  }
}

// Loads the bias of a tile, a stage, and its residual, a stage for each chunk of columns.
__device__ __forceinline__ void load_addends(const Addends& addends, const Schedule& schedule,
                                             TilePipeline& pipeline, Addresses at) {
  if constexpr (kBias) {
    const int columns = min(addends.n - schedule.column(), BN);  // none where a cluster overhangs
    const unsigned bytes = columns > 0 ? columns * sizeof(out_t) : 0;
    pipeline.producer_acquire(bytes);
    if (bytes > 0) {
      bulk_load(at.bias(pipeline.stage()), addends.bias + schedule.column(), bytes,
                pipeline.full());
    }
    pipeline.advance();
  }
  if constexpr (kResidual) {
#pragma unroll 1
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      pipeline.producer_acquire(BM * kRowBytes);
      const int column = schedule.column() + chunk_column(chunk);
      tma_load(at.a(pipeline.stage()), addends.map_residual,
               reads_residual(addends.beta) ? column : kNowhere,
               first_of(schedule, addends.m) + schedule.row(), pipeline.full());
      pipeline.advance();
    }
  }
}

// Run by one thread: fills the ring with every tile's operands, then with what is added to it.
__device__ __forceinline__ void produce(const TensorMap& map_a, const TensorMap& map_b,
                                        const Addends& addends, Schedule& schedule,
                                        TilePipeline& pipeline, Addresses at, int k, int steps,
                                        bool b_once) {
  release_next_kernel();
  await_previous_kernel();
  while (schedule.next()) {
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      pipeline.producer_acquire(STAGE_BYTES);
      load_operands(map_a, map_b, addends, schedule, pipeline, at, k, step, b_once);
      pipeline.advance();
    }
    load_addends(addends, schedule, pipeline, at);
  }
}

// PINGPONG, lets the other consumer begin its tile. All stages of this one have landed, those of
// its addends too: else the other might wait for a stage whose barrier is a phase behind, which
// looks as if it were there.
__device__ __forceinline__ void hand_over(TilePipeline pipeline, int consumer) {
#pragma unroll
  for (int i = 0; i < kAddendStages; ++i) {
    pipeline.consumer_wait();
    pipeline.advance();
  }
  named_barrier_arrive(2 + 1 - consumer, 256);
}

// PINGPONG, passes over the tile that is the other's.
__device__ __forceinline__ void leave_to_other(Schedule& schedule, TilePipeline& pipeline,
                                               int steps) {
  schedule.skip();
  pipeline.skip(steps + kAddendStages);
}

// Run by one consumer warpgroup.
__device__ __forceinline__ void consume(const Target& target, const Addends& addends,
                                        Schedule& schedule, TilePipeline& pipeline, Addresses at,
                                        int steps, int consumer) {
  const int warp = __shfl_sync(~0u, threadIdx.x / 32 % 4, 0);
  const int first_row = consumer % TEAM * kBlocks * 64;
  const int first_of_warp = first_row + warp * kChunkRows;
  Staging staging(at.staging(consumer * 4 + warp));
  WaitingTile waiting(target, addends.alpha);
  const auto store_waiting = [&] {
    if constexpr (OVERLAP) {
      if (waiting.is_leaving()) waiting.store_part(staging);
    }
  };
  bool first_of_block = consumer == 0;
  if (PINGPONG && consumer == 1) leave_to_other(schedule, pipeline, steps);
  while (schedule.next()) {
    if constexpr (PINGPONG) {
      if (!first_of_block) named_barrier_sync(2 + consumer, 256);
      first_of_block = false;
    }
    Sums d;
    if constexpr (PROMOTED) {
      multiply_promoted(d, pipeline, at, first_row, steps, store_waiting);
    } else {
      multiply_tile(d, pipeline, at, first_row, steps, store_waiting, [&] {
        if (PINGPONG && !schedule.is_last()) hand_over(pipeline, consumer);
      });
    }

    const Place place{schedule.row() + first_of_warp, schedule.column(),
                      first_of(schedule, target.m)};
    if constexpr (OVERLAP) {
#pragma unroll 1
      while (waiting.is_leaving()) waiting.store_part(staging);
    }
    scale_and_add_bias(d, addends, pipeline, at);
    if (!LATE || schedule.is_last()) finish(d, addends, pipeline, at, first_of_warp);
    if constexpr (kFunction) user_epilogue_all<COLUMNS / 2>(d, place.row, place.column);
    if (!PINGPONG && schedule.is_last()) {
      store_last_tile(d, target, place, at, first_of_warp, consumer);
      if constexpr (LATE) break;  // else the sums before would be kept beside these
    } else if constexpr (OVERLAP) {
      waiting.take(d, place);
    } else {
      store_tile(d, target, place, staging);
    }
    if constexpr (PINGPONG) leave_to_other(schedule, pipeline, steps);
  }
  if (threadIdx.x % 32 == 0) tma_store_wait_read<0>();
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kPadThreads)
    matmul_pad(const dtype_t* __restrict__ a, const dtype_t* __restrict__ b,
               dtype_t* __restrict__ padded_a, dtype_t* __restrict__ padded_b, int m, int n, int k,
               int pitch, int lda, int ldb, float alpha) {
  release_next_kernel();
  await_previous_kernel();
  if (reads_operands(alpha)) pad_rows(a, b, padded_a, padded_b, m, n, k, pitch, lda, ldb);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) matmul_persistent_wave(
    const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
    const __grid_constant__ TensorMap map_d, out_t* __restrict__ d, int m, int n, int k, int ldd,
    int group, int b_once, const __grid_constant__ TensorMap map_residual,
    const out_t* __restrict__ column_bias, float alpha, float beta, out_t* __restrict__ d_k,
    out_t* __restrict__ d_v, const __grid_constant__ TensorMap map_d_k,
    const __grid_constant__ TensorMap map_d_v) {
  extern __shared__ unsigned char memory[];
  const Addresses at{(static_cast<unsigned>(__cvta_generic_to_shared(memory)) + 1023) & ~1023u};
  const int role = __shfl_sync(~0u, threadIdx.x / 128, 0);
  const bool first_warp = __shfl_sync(~0u, threadIdx.x / 32, 0) == 0;
  const int steps = (k + DEPTH - 1) / DEPTH;

  if (first_warp && elect_one()) {
    tma_prefetch(map_a);
    tma_prefetch(map_b);
    TilePipeline(at.barriers()).init(TEAM * 4);
    mbarrier_init_fence();
    if constexpr (ALIGNED_D) {
      tma_prefetch(map_d);
      if constexpr (kSplit) {
        tma_prefetch(map_d_k);
        tma_prefetch(map_d_v);
      }
    }
  }
  Schedule schedule(m, n, group, batch);
  TilePipeline pipeline(at.barriers(), schedule.rank_m(), schedule.rank_n());
  const Addends addends{map_residual, column_bias, alpha, beta, m, n};
  if constexpr (kCluster > 1) {
    __syncwarp();
    cluster_arrive_relaxed();
    cluster_wait();
  }

  if (role == 0) {
    if (first_warp) {
      __syncwarp();
      if constexpr (kCluster == 1) named_barrier_arrive(1, 32 + 128 * CONSUMERS);
      if constexpr (PRODUCER_REGISTERS != 0) registers_release<PRODUCER_REGISTERS>();
      if (elect_one()) {
        produce(map_a, map_b, addends, schedule, pipeline, at, k, steps, b_once != 0);
      }
      __syncwarp();
    } else {
      if constexpr (PRODUCER_REGISTERS != 0) registers_release<PRODUCER_REGISTERS>();
    }
  } else {
    if constexpr (kCluster == 1) named_barrier_sync(1, 32 + 128 * CONSUMERS);
    if constexpr (CONSUMER_REGISTERS != 0) registers_claim<CONSUMER_REGISTERS>();
    const Target target{{d, d_k, d_v, n, ldd}, map_d, map_d_k, map_d_v, m};
    consume(target, addends, schedule, pipeline, at, steps, role - 1);
  }
  // The other blocks still load for this one and arrive at its barriers until they have arrived
  // here. The arrival releases: without that, its own at their barriers may still be on their way.
  if constexpr (kCluster > 1) {
    cluster_arrive();
    cluster_wait();
  }
}
