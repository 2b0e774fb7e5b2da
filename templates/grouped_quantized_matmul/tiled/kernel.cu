// d[r, n] = a[r, k] * w[expert of r, n, k]^T with packed weights, and the epilogue of experts, on
// mma.sync.
//
// The blocks of the grid walk the tiles of all experts (group_schedule.cuh). Each is a product of
// up to BM rows of a by BN rows of weights (multiply_tile.cuh). Rows of another expert are loaded
// as zeros and not stored.

#include <kernwright/config.cuh>
#include <kernwright/math/vector.cuh>
#include <kernwright/matmul/group_schedule.cuh>
#include <kernwright/ptx/programmatic.cuh>
#include <kernwright/quantized/expert_epilogue.cuh>
#include <kernwright/quantized/multiply_tile.cuh>

using namespace kernwright;
using namespace kernwright::config;

using Schedule = GroupSchedule<experts, BM, COLUMNS>;

extern "C" __global__ void __launch_bounds__(THREADS)
    grouped_quantized_matmul_tiled(KW_PARAMETERS(grouped_quantized_matmul_tiled)) {
  extern __shared__ __align__(128) unsigned char shared[];
  const unsigned ring = shared_address(shared), table = ring + RING_BYTES;
  const unsigned rows_of_tile = table + Schedule::kTableBytes;  // in a
  static_assert(RING_BYTES + Schedule::kTableBytes + 4 * BM <= SMEM_BYTES);
  await_previous_kernel();
  release_next_kernel();
  if (threadIdx.x < 32) Schedule::build(table, ends, counts);
  __syncthreads();

  Schedule schedule(table, kN, GROUP, room);
  while (schedule.next()) {
    const int rows = schedule.rows(), first_row = schedule.first_row();
    for (int row = threadIdx.x; row < rows; row += THREADS) {
      const int place = first_row + row;
      store_number(rows_of_tile + row * 4, a_rows == a_rows_indexed ? row_of[place] : place);
    }
    __syncthreads();  // the rows are known to all, and no warp reads the results of the last tile
    const long long expert = schedule.group(), block_row = expert * kRowBlocks;
    const int tile = schedule.column() / COLUMNS;
    TileSums sum = {};
    multiply_tile(
        sum, ring, a, b + block_row * kBlocks * kBlockBytes, b_scale + block_row * GROUPS * 64,
        b_zero + block_row * GROUPS * 64, tile, kStageCount, [&](int row) {
          return row < rows ? static_cast<long long>(load_number(rows_of_tile + row * 4)) * kK
                            : -1LL;
        });
    float* const staged = reinterpret_cast<float*>(shared);
    stage_sums(staged, sum);
    __syncthreads();

    constexpr int kStores = COLUMNS / ALIGN_D;  // of a row
    const ScaledExpertEpilogue epilogue(
        ExpertEpilogue(bias + expert * STACK * kN, limit, gate_alpha, kN), row_scale);
#pragma unroll 2
    for (int piece = threadIdx.x; piece < rows * kStores; piece += THREADS) {
      const int row = piece / kStores, place = first_row + row;
      const int column = piece % kStores * ALIGN_D, in_d = schedule.column() + column;
      if (in_d >= kN) continue;
      const float* const from = staged + row * kStoreStride + column;
      float x[ALIGN_D];
#pragma unroll
      for (int i = 0; i < ALIGN_D; ++i) {
        x[i] = epilogue.finished(from[i], kGated ? from[i + COLUMNS] : 0,
                                 epilogue.addends(place, in_d + i));
      }
      store<Store::plain>(d + static_cast<long long>(place) * kN + in_d,
                          pack<out_t, ALIGN_D * sizeof(out_t)>(x));
    }
  }
}
