// d[r, n] = a[r, k] * b[group of r, n, k]^T, with a bias, activated or gated, on mma.sync.
//
// The blocks of the grid walk the tiles of all groups (group_schedule.cuh). A tile's operands come
// through a ring of stages of 64 of k, which all threads fill by cp.async. Rows of another group
// are neither loaded nor stored: the old content of the ring in their place makes sums that are
// dropped. The numbers of a tile's rows in an indexed a are kept beside the ring.
//
// With stacked gates, 8 gates and the 8 rows of b that they open take turns in a stage, so that a
// thread has both sums of an element. It also has them if both interleave in b. Then it has one
// element of each of two rows of d, and neighbours exchange elements, to store two of one row.
//
// With b_layout=kn a stage of b has 64 rows of k, and fragments are loaded transposed.

#include <kernwright/config.cuh>
#include <kernwright/math/vector.cuh>
#include <kernwright/matmul/expert_epilogue.cuh>
#include <kernwright/matmul/group_schedule.cuh>
#include <kernwright/ptx/cp_async.cuh>
#include <kernwright/ptx/ldmatrix.cuh>
#include <kernwright/ptx/mma.cuh>
#include <kernwright/ptx/programmatic.cuh>
#include <kernwright/tile/swizzle.cuh>

using namespace kernwright;
using namespace kernwright::config;

constexpr int kRowBytes = kSwizzleBytes;
constexpr int kDepth = kRowBytes / sizeof(dtype_t);
constexpr int kVector = 16 / sizeof(dtype_t);
constexpr int kStageBytes = (BM + BN) * kRowBytes;
constexpr int kMmaM = WM / 16;
constexpr int kMmaN = WN / 8;
constexpr bool kTurns = b_layout == b_layout_kn;
constexpr bool kInterleaves = gate == gate_interleaved;
constexpr int kColumnStep = kInterleaves ? 2 : 1;  // rows of b from a column of d to the next

using Schedule = GroupSchedule<groups, BM, COLUMNS>;

// Copies 128 bytes of k of `Rows` rows. `row_at(row)` is a row's first element or null. Elements
// beyond the last of `k` become zero.
template <int Rows, typename RowAt>
__device__ __forceinline__ void copy_rows(unsigned destination, int first_k, int k,
                                          const RowAt& row_at) {
  constexpr int kPieces = kRowBytes / 16;
#pragma unroll
  for (int i = threadIdx.x; i < Rows * kPieces; i += THREADS) {
    const int row = i / kPieces, piece = i % kPieces, at = first_k + piece * kVector;
    const dtype_t* const from = row_at(row);
    if (!from) continue;
    const bool exists = at < k;
    cp_async<16>(destination + row * kRowBytes + swizzled_group(row, piece),
                 from + (exists ? at : 0), exists ? 16 : 0);
  }
}

// Returns the column of d that row `row` of b in a tile belongs to.
__device__ __forceinline__ int column_of(int row) {
  if constexpr (gate == gate_stacked) return row / 16 * 8 + row % 8;
  return kInterleaves ? row / 2 : row;
}

// Copies BN columns of 64 rows of k. `column_at(column)` is the element of such a column in the
// first row, or null. Elements beyond the last of `k` become zero.
template <typename ColumnAt>
__device__ __forceinline__ void copy_columns(unsigned destination, int first_k, int k, int pitch,
                                             const ColumnAt& column_at) {
  constexpr int kPieces = BN / kVector;
#pragma unroll
  for (int i = threadIdx.x; i < kDepth * kPieces; i += THREADS) {
    const int row = i / kPieces, piece = i % kPieces, at = first_k + row;
    const dtype_t* const from = column_at(piece * kVector);
    if (!from) continue;
    const bool exists = at < k;
    cp_async<16>(destination + row * BN * 2 + swizzled_group(row, piece),
                 from + (exists ? static_cast<long long>(at) * pitch : 0), exists ? 16 : 0);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    grouped_matmul_tiled(KW_PARAMETERS(grouped_matmul_tiled)) {
  extern __shared__ __align__(128) unsigned char shared[];
  const unsigned ring = shared_address(shared), table = ring + RING_BYTES;
  const unsigned rows_of_tile = table + Schedule::kTableBytes;  // in an indexed a
  await_previous_kernel();
  release_next_kernel();
  const int lane_id = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int warp_m = warp % WARPS_M, warp_n = warp / WARPS_M;
  if (warp == 0) Schedule::build(table, ends, counts);
  __syncthreads();

  const int steps = (k + kDepth - 1) / kDepth;
  const int row_a = warp_m * WM + lane_id % 16;
  const int row_b = BM + warp_n * WN + lane_id / 16 * 8 + lane_id % 8;
  Schedule schedule(table, n, GROUP, room);
  while (schedule.next()) {
    const int rows = schedule.rows(), columns = n - schedule.column();
    if constexpr (a_rows == a_rows_indexed) {
      for (int row = threadIdx.x; row < rows; row += THREADS) {
        store_number(rows_of_tile + row * 4, row_of[schedule.first_row() + row]);
      }
      __syncthreads();  // the rows are known to all
    }
    const dtype_t* const first_a = a + static_cast<long long>(schedule.first_row()) * k;
    const int in_group = schedule.column() * kColumnStep;  // the tile's first row of b
    const dtype_t* const first_b =
        kTurns ? b + static_cast<long long>(schedule.group()) * k * (STACK * n) + in_group
               : b + (static_cast<long long>(schedule.group()) * STACK * n + in_group) * k;
    const ExpertEpilogue epilogue(bias + static_cast<long long>(schedule.group()) * STACK * n,
                                  limit, gate_alpha, kInterleaves ? 1 : n, kColumnStep);
    const auto copy_stage = [&](int step) {
      if (step < steps) {
        const unsigned to = ring + step % STAGES * kStageBytes;
        copy_rows<BM>(to, step * kDepth, k, [&](int row) -> const dtype_t* {
          if (row >= rows) return nullptr;
          if constexpr (a_rows == a_rows_indexed) {
            return a + static_cast<long long>(load_number(rows_of_tile + row * 4)) * k;
          }
          return first_a + static_cast<long long>(row) * k;
        });
        const auto row_at = [&](int row) -> const dtype_t* {
          const int column = column_of(row);
          const int other = gate == gate_stacked ? row / 8 % 2 * n : 0;
          if (column >= columns) return nullptr;
          return first_b +
                 static_cast<long long>(other + (kInterleaves ? row : column)) * (kTurns ? 1 : k);
        };
        if constexpr (kTurns) {
          copy_columns(to + BM * kRowBytes, step * kDepth, k, STACK * n, row_at);
        } else {
          copy_rows<BN>(to + BM * kRowBytes, step * kDepth, k, row_at);
        }
      }
      cp_async_commit();  // an empty group keeps the count of groups equal to the count of stages
    };

    float sum[kMmaM][kMmaN][4] = {};
#pragma unroll
    for (int s = 0; s < STAGES - 1; ++s) copy_stage(s);
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      cp_async_wait<STAGES - 2>();
      __syncthreads();  // the stage has landed for all, and no warp reads the one before any more
      copy_stage(step + STAGES - 1);
      const unsigned stage = ring + step % STAGES * kStageBytes;
#pragma unroll
      for (int part = 0; part < kRowBytes / 32; ++part) {
        unsigned fragment_a[kMmaM][4], fragment_b[kMmaN / 2][4];
#pragma unroll
        for (int i = 0; i < kMmaM; ++i) {
          const int row = row_a + i * 16;
          ldmatrix_x4(fragment_a[i],
                      stage + row * kRowBytes + swizzled_group(row, part * 2 + lane_id / 16));
        }
#pragma unroll
        for (int j = 0; j < kMmaN / 2; ++j) {
          if constexpr (kTurns) {
            const int row = part * 16 + lane_id % 16;  // of k
            ldmatrix_transposed_x4(fragment_b[j],
                                   stage + BM * kRowBytes + row * BN * 2 +
                                       swizzled_group(row, warp_n * WN / 8 + j * 2 + lane_id / 16));
          } else {
            const int row = row_b + j * 16;
            ldmatrix_x4(fragment_b[j],
                        stage + row * kRowBytes + swizzled_group(row, part * 2 + lane_id / 8 % 2));
          }
        }
#pragma unroll
        for (int i = 0; i < kMmaM; ++i) {
#pragma unroll
          for (int j = 0; j < kMmaN; ++j) {
            mma_m16n8<dtype_t>(sum[i][j], fragment_a[i], fragment_b[j / 2][j % 2 * 2],
                               fragment_b[j / 2][j % 2 * 2 + 1]);
          }
        }
      }
    }
    __syncthreads();  // the ring is free for the next tile

    const auto is_of_tile = [&](int row, int column) { return row < rows && column < columns; };
    const auto store_pair = [&](int row, int column, float first, float second) {
      dtype_t* const to =
          d + static_cast<long long>(schedule.first_row() + row) * n + schedule.column() + column;
      *reinterpret_cast<unsigned*>(to) = pack_pair<dtype_t>(first, second);
    };
    const auto addends_of = [&](int column) {
      return column < columns ? epilogue.addends(schedule.column() + column)
                              : ExpertEpilogue::Addends{};
    };
#pragma unroll
    for (int i = 0; i < kMmaM; ++i) {
      const int first_row = warp_m * WM + i * 16 + lane_id / 4;
      if constexpr (kInterleaves) {
#pragma unroll
        for (int j = 0; j < kMmaN; ++j) {
          const int column = (warp_n * WN + j * 8) / 2 + lane_id % 4;
          const auto addends = addends_of(column);
          const float(&own)[4] = sum[i][j];
          const float low = epilogue.finished(own[0], own[1], addends);
          const float high = epilogue.finished(own[2], own[3], addends);
          const bool is_odd = lane_id % 2;
          const float received = __shfl_xor_sync(~0u, is_odd ? low : high, 1);
          const int row = first_row + is_odd * 8, even_column = column - is_odd;
          if (!is_of_tile(row, even_column)) continue;
          store_pair(row, even_column, is_odd ? received : low, is_odd ? high : received);
        }
      } else {
#pragma unroll
        for (int j = 0; j < kMmaN; j += STACK) {
          const int column = (warp_n * WN + j * 8) / STACK + lane_id % 4 * 2;
          const auto first = addends_of(column), second = addends_of(column + 1);
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const int row = first_row + half * 8;
            if (!is_of_tile(row, column)) continue;
            const float* const x = sum[i][j] + 2 * half;
            const float* const other = sum[i][j + STACK - 1] + 2 * half;
            store_pair(row, column, epilogue.finished(x[0], other[0], first),
                       epilogue.finished(x[1], other[1], second));
          }
        }
      }
    }
  }
}
