// D[m, n] = A[m, k] * B[n, k]^T, or A[m, k] * B[k, n] with b_layout=kn, row-major, for Hopper.
// Operands have 16 or 8 bits or are fp32 taken as tf32, the result has 16 bits or is fp32, and sums
// are accumulated in fp32, or for int8 in int32.
//
// One warpgroup is the producer: it fills a ring of stages in shared memory by TMA. The others are
// consumers: they multiply from the ring with wgmma. TEAM of them share a tile, and each has
// BM / TEAM of its rows.
//
// A cluster of CM x CN blocks takes neighbouring tiles. Its blocks load shared operands once: each
// loads a part and multicasts it or, if B does not divide into such parts, loads a whole stage in
// turn. Clusters walk the tiles in steps of the grid, which has as many clusters as fit the device
// (PERSISTENT) or one for each tile.
//
// Each warp runs the epilogue of its own 16 rows of D. It stores them, rounded, in chunks of CHUNK
// columns through a staging buffer of its own. Variants:
//
// OVERLAP   The rounded tile stays in registers and is stored during the first k steps of the next
//           tile, so that the tensor cores do not wait for it.
// LATE      The sums stay in registers, and are activated or gated there too, some columns a step.
// PINGPONG  A consumer has all rows of a tile. Two consumers take turns: while one finishes its
//           tile, the other multiplies the next.
// SPLIT     SPLIT blocks of a cluster take a part of k of one tile each, and send each other their
//           sums (parts.cuh). A cluster then has CM x CN x SPLIT blocks.
// PROMOTED  The tensor cores keep about 14 bits of a sum of fp8 products. So they sum one stage,
//           and the result is added to sums in fp32. One consumer adds while others multiply.
// scaling   With scales of blocks, a second warp of the producer copies a stage's scales, and the
//           sums of a stage are multiplied by them on their way. With AHEAD a consumer adds the
//           sums of one stage while it multiplies the next. Scales of rows belong to the epilogue.
// TRANSPOSED  The product is computed transposed. Then A, m and the rows of a tile belong to the
//           problem's b, and B, n and the columns to its a.
// gate      A stage holds BN / 2 rows of B's gates and the same rows of its other half. A consumer
//           thread has both sums of an element, and a tile has COLUMNS = BN / 2 columns of D.
//
// A block's last tile is staged in the ring, which nothing will fill again. The bias, the scales of
// rows of B and the residual of a tile come through the ring after its operands, so that they have
// landed when the sums are ready. The products of a batch follow each other as more rows of all
// tensors, and so do their tiles in the schedule.
//
// TMA cannot address rows that do not start at multiples of 16 bytes. A launch before this one,
// matmul_pad, copies operands with such rows; such rows of D are stored element by element.

#include "epilogue.cuh"
#include "layout.cuh"
#include "mainloop.cuh"
#include "parts.cuh"
#include <kernwright/config.cuh>
#include <kernwright/matmul/pad_rows.cuh>
#include <kernwright/ptx/cluster.cuh>
#include <kernwright/ptx/mbarrier.cuh>
#include <kernwright/ptx/programmatic.cuh>
#include <kernwright/ptx/tma.cuh>
#include <kernwright/ptx/warp_roles.cuh>
#include <kernwright/tile/frame.cuh>

namespace {

// Returns the first row of the tile's product in a tensor with `rows` rows for each product.
__device__ __forceinline__ int first_of(const Schedule& schedule, int rows) {
  return batch == 1 ? 0 : schedule.product() * rows;
}

// Loads this block's share of a stage: its slice of A, and its slice of B or, if the blocks that
// share B take turns (kTurns), all of B or nothing. `once` means that no other tile reads the
// problem's b.
__device__ __forceinline__ void load_operands(const TensorMap& map_a, const TensorMap& map_b,
                                              const Addends& addends, const Schedule& schedule,
                                              const TilePipeline& pipeline, Addresses at, int k,
                                              int step, bool once) {
  constexpr unsigned kColumnRanks = (1u << CM) - 1;  // ranks m + CM * n of one n, shifted
  constexpr unsigned kRowRanks = ((1u << kCluster) - 1) / kColumnRanks;  // of one m: 1 + 2^CM + ...
  constexpr int kSliceB = BN / SLICES;
  constexpr int kSlicesOfHalf = SLICES / STACK;
  const int rank_m = schedule.rank_m(), rank_n = schedule.rank_n();
  const int sharers = first_sharer();
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
                     full, kRowRanks << (sharers + rank_m), TRANSPOSED && once);
    if constexpr (kMajorB == Major::k) {
      if (kTurns && step % CM != rank_m) continue;
#pragma unroll
      for (int i = 0; i < SLICES; i += kTurns ? 1 : CM) {
        const int slice = kTurns ? i : rank_m + i;
        const int row_b = first_b + schedule.column() + slice / kSlicesOfHalf * addends.n +
                          slice % kSlicesOfHalf * kSliceB;
        tma_load_for<CM>(at.b(stage) + (box * BN + slice * kSliceB) * kRowBytes, map_b, x, row_b,
                         full, kColumnRanks << (sharers + rank_n * CM), !TRANSPOSED && once);
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
                       row_b, full, kColumnRanks << (sharers + rank_n * CM), once);
    }
  }
}

// Loads the scales of a tile's rows of b into one stage, its bias into one, and its residual into
// one for each chunk.
__device__ __forceinline__ void load_addends(const Addends& addends, const Schedule& schedule,
                                             TilePipeline& pipeline, Addresses at) {
  if constexpr (kRowScaled) {
    const int columns = min(addends.n - schedule.column(), COLUMNS);
    const unsigned bytes = columns > 0 ? columns * sizeof(float) : 0;
    pipeline.producer_acquire(STACK * bytes);
    if (bytes > 0) {
      const float* const from =
          addends.scales.b + first_of(schedule, STACK * addends.n) + schedule.column();
#pragma unroll
      for (int half = 0; half < STACK; ++half) {
        bulk_load(at.column_scales(pipeline.stage()) + half * COLUMNS * sizeof(float),
                  from + half * addends.n, bytes, pipeline.full());
      }
    }
    pipeline.advance();
  }
  if constexpr (kBias) {
    const int columns = min(addends.n - schedule.column(), BN);  // 0 or less beyond the last column
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

// Fills the ring with each tile's operands, then its bias and residual. Run by the producer, one
// thread.
__device__ __forceinline__ void produce(const TensorMap& map_a, const TensorMap& map_b,
                                        const Addends& addends, Schedule& schedule,
                                        TilePipeline& pipeline, Addresses at, int k,
                                        const Steps& steps, bool once) {
  release_next_kernel();
  await_previous_kernel();
  while (schedule.next()) {
#pragma unroll 1
    for (int step = steps.first; step < steps.last; ++step) {
      pipeline.producer_acquire(STAGE_BYTES);
      load_operands(map_a, map_b, addends, schedule, pipeline, at, k, step, once);
      pipeline.advance();
    }
    load_addends(addends, schedule, pipeline, at);
  }
  if constexpr (kCluster > 1) pipeline.producer_drain();
}

// Copies the scales of each stage. Run with scales of blocks, by one warp beside the producer.
__device__ __forceinline__ void produce_scales(const ScaleTensors& scales, Schedule& schedule,
                                               TilePipeline& pipeline, Addresses at,
                                               const Steps& steps) {
  await_previous_kernel();
  while (schedule.next()) {
    const ScaleTensors from = scales_of(scales, batch == 1 ? 0 : schedule.product());
#pragma unroll 1
    for (int step = steps.first; step < steps.last + kAddendStages; ++step) {
      pipeline.producer_wait();
      if (step < steps.last) {
        at.scales(pipeline.stage()).load(from, schedule.row(), schedule.column(), step);
      }
      arrive_with_scales(pipeline.full());
      pipeline.advance();
    }
  }
}

// Lets the other consumer begin its tile, with PINGPONG. All stages of this tile have landed by
// then, the stages of its addends too. If not, the other consumer might wait for a stage whose
// barrier is a phase behind, which looks as if the stage had landed.
__device__ __forceinline__ void hand_over(TilePipeline pipeline, int consumer) {
#pragma unroll
  for (int i = 0; i < kAddendStages; ++i) {
    pipeline.consumer_wait();
    pipeline.advance();
  }
  named_barrier_arrive(2 + 1 - consumer, 256);
}

// Skips the other consumer's tile and its stages, with PINGPONG.
__device__ __forceinline__ void leave_to_other(Schedule& schedule, TilePipeline& pipeline,
                                               int steps) {
  schedule.skip();
  pipeline.skip(steps + kAddendStages);
}

// Multiplies and stores tiles. Run by a consumer, one warpgroup.
__device__ __forceinline__ void consume(const Target& target, const Addends& addends,
                                        Schedule& schedule, TilePipeline& pipeline, Addresses at,
                                        int steps, int consumer) {
  const int warp = warp_in_group();
  const int first_row = consumer % TEAM * kBlocks * 64;
  const int first_of_warp = first_row + warp * kChunkRows;
  TileStaging staging(at.staging(consumer * 4 + warp));
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
    Acc d;
    if constexpr (PROMOTED) {
      multiply_promoted(d, pipeline, at, first_row, schedule.column(), steps, store_waiting);
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
    if constexpr (SPLIT > 1) {
      if (!add_parts(d, at, consumer * 4 + warp)) break;
    }
    scale_and_add_bias(d, addends, place, pipeline, at);
    if (!LATE || schedule.is_last()) finish(d, addends, pipeline, at, first_of_warp);
    if constexpr (kFunction) user_epilogue_all<COLUMNS / 2>(d, place.row, place.column);
    if (SLOTS == 0 || (!PINGPONG && schedule.is_last())) {
      store_last_tile(d, target, place, at, first_of_warp, consumer);
      if constexpr (LATE) break;  // else the compiler keeps the waiting sums beside these
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

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    matmul_persistent_wave(KW_PARAMETERS(matmul_persistent_wave)) {
  extern __shared__ unsigned char memory[];
  const Addresses at{aligned_shared(memory)};
  const int role = warpgroup_number();
  const int warp = warp_number();
  const bool first_warp = warp == 0;
  constexpr int kStarters = (kScaled ? 64 : 32) + 128 * CONSUMERS;  // await the barriers
  const int steps = (k + DEPTH - 1) / DEPTH;
  const Steps own(steps);
  const TensorMap& map_rows = TRANSPOSED ? map_b : map_a;
  const TensorMap& map_columns = TRANSPOSED ? map_a : map_b;
  const int rows = TRANSPOSED ? n : m, columns = TRANSPOSED ? m : n;

  if (first_warp && elect_one()) {
    tma_prefetch(map_a);
    tma_prefetch(map_b);
    TilePipeline(at.barriers()).init(TEAM * 4, kScaled ? 1 + kScaleWriters : 1);
    if constexpr (SPLIT > 1) mbarrier_init(at.received(), 1);
    mbarrier_init_fence();
    if constexpr (SPLIT > 1) mbarrier_arrive_expect(at.received(), kPartBytes);
    if constexpr (ALIGNED_D) {
      tma_prefetch(map_d);
      if constexpr (kSplit) {
        tma_prefetch(map_d_k);
        tma_prefetch(map_d_v);
      }
    }
  }
  Schedule schedule(rows, columns, GROUP, batch);
  TilePipeline pipeline(at.barriers(), schedule.rank_m(), schedule.rank_n(), first_sharer());
  const Addends addends{map_residual, bias, {scale_a, scale_b}, alpha, beta, rows, columns};
  if constexpr (kCluster > 1) {
    __syncwarp();
    cluster_sync_relaxed();
  }

  if (role == 0) {
    if (first_warp) {
      __syncwarp();
      if constexpr (kCluster == 1) named_barrier_arrive(1, kStarters);
      registers_release<kRegisters.producer>();
      if (elect_one()) {
        produce(map_rows, map_columns, addends, schedule, pipeline, at, k, own, b_once != 0);
      }
      __syncwarp();
    } else {
      registers_release<kRegisters.producer>();
      if (kScaled && warp == 1) {
        if constexpr (kCluster == 1) named_barrier_sync(1, kStarters);
        produce_scales({scale_a, scale_b, m, n, lds, steps}, schedule, pipeline, at, own);
      }
    }
  } else {
    if constexpr (kCluster == 1) named_barrier_sync(1, kStarters);
    registers_claim<kRegisters.consumer>();
    const Target target{{d, d_k, d_v, n, ldd}, map_d, map_d_k, map_d_v, rows};
    consume(target, addends, schedule, pipeline, at, own.last - own.first, role - 1);
  }
}
