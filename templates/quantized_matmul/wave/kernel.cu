// D[m, n] = A[m, k] * W[n, k]^T for Hopper, where W are packed weights of 4 or 8 bits. Rows of A
// start at multiples of 16 bytes.
//
// The product is computed transposed: rows of weights are the 64 rows of wgmma, whose A fragments
// packed weights are, and rows of A its second dimension. A consumer turns codes to numbers in
// registers, and the tensor cores take them from there.
//
// producer   a warp, whose lanes share the copies, fills the ring: rows of A by TMA, and codes with
//            the scales and zero points of their groups by bulk copies
// consumers  multiply and store the result. TEAM of them share a tile, and each has ROWS / TEAM of
//            its rows of weights and all of its TOKENS rows of A.
//
// CM        blocks of a cluster take neighbouring rows of weights and load the same rows of A once
// PINGPONG  a consumer has a whole tile, and two take turns: one stores while the other multiplies
// SPLIT     the blocks of a cluster share a tile, and each has a part of k (parts.cuh)

#include "layout.cuh"
#include "mainloop.cuh"
#include "parts.cuh"
#include "result.cuh"
#include <kernwright/ptx/cluster.cuh>
#include <kernwright/ptx/programmatic.cuh>
#include <kernwright/ptx/tma.cuh>

namespace {

// The stages of k that a block multiplies, of `all`: with SPLIT a part of them.
struct Stages {
  int first, last;

  __device__ explicit Stages(int all) : first(0), last(all) {
    if constexpr (SPLIT > 1) {
      const int part = static_cast<int>(cluster_rank());
      first = part * all / SPLIT;
      last = (part + 1) * all / SPLIT;
    }
  }
};

// The packed weights, with `rows` rows of blocks and `columns` blocks in each.
struct Weights {
  const unsigned char* codes;
  const scale_t* scales;
  const unsigned char* zeros;
  int rows, columns, groups;
  bool once;  // no other tile reads them
};

// Loads the blocks of weights of a stage, without those behind the last row, from row of blocks
// `row` and column `column` on.
struct StageOfWeights {
  const Weights& from;
  int row, rows;

  __device__ StageOfWeights(const Weights& weights, int first)
      : from(weights), row(first / 64), rows(::max(0, ::min(kBlocks, weights.rows - first / 64))) {}

  __device__ int groups_of(int step) const {
    return group_of((step + 1) * BK - 1, from.groups) - group_of(step * BK, from.groups) + 1;
  }
  __device__ unsigned bytes(int step) const {
    constexpr unsigned kFactorBytes = 64 * (sizeof(scale_t) + kZeros);
    return rows * (kBoxes * kBlockBytes + groups_of(step) * kFactorBytes);
  }
  // Run by a warp: lanes 0 to 7 load the codes of a row of blocks each, the next 8 the scales, and
  // the next 8 the zero points.
  __device__ __forceinline__ void load(Addresses at, int stage, int step, unsigned full) const {
    const int lane_id = threadIdx.x % 32, i = lane_id % 8;
    if (i >= rows) return;
    const int first_group = group_of(step * BK, from.groups), groups = groups_of(step);
    const long long block = static_cast<long long>(row + i) * from.columns + step * kBoxes;
    const long long factors = (static_cast<long long>(row + i) * from.groups + first_group) * 64;
    if (lane_id < 8) {
      load_bytes(at.codes(stage, i), from.codes + block * kBlockBytes, kBoxes * kBlockBytes, full);
    } else if (lane_id < 16) {
      load_bytes(at.scales(stage, i), from.scales + factors, groups * 64 * sizeof(scale_t), full);
    } else if (kZeros && lane_id < 24) {
      load_bytes(at.zeros(stage, i), from.zeros + factors, groups * 64, full);
    }
  }

 private:
  __device__ __forceinline__ void load_bytes(unsigned to, const void* source, unsigned bytes,
                                             unsigned full) const {
    if (from.once) {
      bulk_load_once(to, source, bytes, full);
    } else {
      bulk_load(to, source, bytes, full);
    }
  }
};

// Fills the ring with the operands of each tile. Run by the producer, a warp.
__device__ __forceinline__ void produce(const TensorMap& map_a, const Weights& weights,
                                        Schedule& schedule, StageRing& ring, Addresses at,
                                        Stages stages) {
  const int first_row = schedule.rank_m() * (TOKENS / CM);  // that this block loads for its cluster
  while (schedule.next()) {
    const StageOfWeights of_tile(weights, schedule.row());
#pragma unroll 1
    for (int step = stages.first; step < stages.last; ++step) {
      ring.warp_acquire(TOKENS * BK * 2 + of_tile.bytes(step));
      const int stage = ring.stage();
      of_tile.load(at, stage, step, ring.full());
      if (const int box = static_cast<int>(threadIdx.x) % 32 - 24; box >= 0 && box < kBoxes) {
        tma_load_for<CM>(at.a(stage) + (box * TOKENS + first_row) * kSwizzleBytes, map_a,
                         step * BK + box * 64, schedule.column() + first_row, ring.full(),
                         (1u << CM) - 1, false);
      }
      ring.advance();
    }
  }
  if constexpr (CM > 1) ring.producer_drain();
}

// Multiplies and stores tiles. Run by a consumer, one warpgroup.
__device__ __forceinline__ void consume(const Result& result, Schedule& schedule, StageRing& ring,
                                        Addresses at, int consumer, Stages stages, int groups) {
  const auto leave_to_other = [&] {
    schedule.skip();
    ring.skip(stages.last - stages.first);
  };
  const int first_block = consumer % TEAM * kOwn;
  int slot = 0;
  bool first_of_block = consumer == 0;
  if (PINGPONG && consumer == 1) leave_to_other();
  while (schedule.next()) {
    if constexpr (PINGPONG) {
      if (!first_of_block) named_barrier_sync(4 + consumer, 256);
      first_of_block = false;
    }
    // With PINGPONG the other consumer may begin once all stages of this tile have landed:
    // otherwise it might take a barrier that is a phase behind for one whose stage has landed.
    const auto all_landed = [&] {
      if (PINGPONG && !schedule.is_last()) named_barrier_arrive(4 + 1 - consumer, 256);
    };
    Acc acc;
    clear(acc);
    multiply_stages(acc, ring, at, first_block, stages.first, stages.last, groups, all_landed);
    const int row = schedule.column();
    const int column = (schedule.row() + first_block * 64) / STACK;
    if constexpr (SPLIT > 1) {
      Whole whole;
      add_parts(whole, acc, at, consumer);
      const int first_own = static_cast<int>(cluster_rank()) * kOwnTokens;
      store_tile(whole, result, at, consumer, row + first_own, column, slot);
    } else {
      store_tile(acc, result, at, consumer, row, column, slot);
    }
    if constexpr (PINGPONG) leave_to_other();
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    quantized_matmul_wave(KW_PARAMETERS(quantized_matmul_wave)) {
  extern __shared__ unsigned char memory[];
  const Addresses at{aligned_shared(memory)};
  const int role = warpgroup_number();
  const int warp = warp_number();
  const Stages stages(reads_operands(alpha) ? (k + BK - 1) / BK : 0);

  if (warp == 0 && elect_one()) {
    tma_prefetch(map_a);
    StageRing(at.barriers()).init(TEAM * 4);
    if constexpr (SPLIT > 1) mbarrier_init(at.received(), 1);
    mbarrier_init_fence();
    if constexpr (SPLIT > 1) mbarrier_arrive_expect(at.received(), kPartBytes);
  }
  __syncthreads();
  if constexpr (SPLIT * CM > 1) cluster_arrive_relaxed();
  if constexpr (CM > 1) cluster_wait();
  release_next_kernel();
  await_previous_kernel();
  Schedule schedule(rows * 64, m, GROUP);
  StageRing ring(at.barriers(), schedule.rank_m());

  if (role == 0) {
    registers_release<kRegisters.producer>();
    if (warp == 0) {
      produce(map_a, {b, b_scale, b_zero, rows, (k + 63) / 64, groups, once != 0}, schedule, ring,
              at, stages);
    }
    if constexpr (SPLIT > 1) cluster_wait();
  } else {
    registers_claim<kRegisters.consumer>();
    const Result result{{alpha, bias, beta, residual, m, n}, {d, d_k, d_v, n, ldd}, m};
    consume(result, schedule, ring, at, role - 1, stages, groups);
  }
}
