// D[m, n] = A[m, k] * W[n, k]^T for Hopper, where W are packed weights of 4 or 8 bits. Rows of A
// start at multiples of 16 bytes.
//
// The product is computed transposed: rows of weights are the 64 rows of wgmma, whose A fragments
// packed weights are, and rows of A its second dimension. A consumer turns codes to numbers in
// registers, and the tensor cores take them from there.
//
// producer   a warp, whose lanes share the copies, fills the ring by TMA: rows of A, and codes with
//            the scales and zero points of their groups
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

// Tensor maps of the packed weights.
struct Weights {
  const TensorMap &codes, &scales, &zeros;
  int groups;
  bool once;  // no other tile reads them

  // Loads the blocks of a stage, from row `row` of the weights on, with zeros behind the last. Run
  // by a warp.
  __device__ __forceinline__ void load(Addresses at, int stage, int step, int row,
                                       unsigned full) const {
    const int lane_id = threadIdx.x % 32;
    if (lane_id == 0) {
      load_box(at.codes(stage, 0), codes, {0, 0, step * kBoxes, row / 64}, full);
    }
    const int first_group = group_of(step * BK, groups);
    if (lane_id == 1) load_box(at.scales(stage, 0), scales, {0, first_group, row / 64}, full);
    if (kZeros && lane_id == 2) {
      load_box(at.zeros(stage, 0), zeros, {0, first_group, row / 64}, full);
    }
  }

 private:
  template <int kDims>
  __device__ __forceinline__ void load_box(unsigned to, const TensorMap& map,
                                           const int (&place)[kDims], unsigned full) const {
    if (once) {
      tma_load_once(to, map, place, full);
    } else {
      tma_load(to, map, place, full);
    }
  }
};

// Fills the ring with the operands of each tile. Run by the producer, a warp.
__device__ __forceinline__ void produce(const TensorMap& map_a, const Weights& weights,
                                        Schedule& schedule, StageRing& ring, Addresses at,
                                        Stages stages) {
  const int first_row = schedule.rank_m() * (TOKENS / CM);  // that this block loads for its cluster
  while (schedule.next()) {
#pragma unroll 1
    for (int step = stages.first; step < stages.last; ++step) {
      ring.warp_acquire(kLoadedBytes);
      const int stage = ring.stage();
      weights.load(at, stage, step, schedule.row(), ring.full());
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
    tma_prefetch(map_codes);
    tma_prefetch(map_scales);
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
      produce(map_a, {map_codes, map_scales, map_zeros, groups, once != 0}, schedule, ring, at,
              stages);
    }
    if constexpr (SPLIT > 1) cluster_wait();
  } else {
    registers_claim<kRegisters.consumer>();
    const Result result{{alpha, bias, beta, residual, m, n}, {d, d_k, d_v, n, ldd}, m};
    consume(result, schedule, ring, at, role - 1, stages, groups);
  }
}
