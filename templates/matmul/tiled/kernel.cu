#include <kernwright/config.cuh>
#include <kernwright/cp_async.cuh>
#include <kernwright/ldmatrix.cuh>
#include <kernwright/mma.cuh>
#include <kernwright/vector.cuh>

using namespace kernwright;
using namespace kernwright::config;

constexpr int kChunks = BK / 8;            // 16-byte chunks of a row of a stage
constexpr int kSteps = BK / 16 / WARPS_K;  // k steps of one warp in a stage
constexpr int kMmaM = WM / 16;
constexpr int kMmaN = WN / 8;
constexpr int kRowBytes = BK * 2;
constexpr int kStageBytes = (BM + BN) * kRowBytes;
constexpr int kStageCount = static_cast<int>(ceil_div(k, BK));  // along k
constexpr int kStoreStride =
    BN + 8;  // elements: 16 bytes of padding keep the staged rows off one another's banks
constexpr long long kK = k;
constexpr long long kN = n;

// Place of a 16-byte chunk in a row of a stage: any eight consecutive rows hold the same chunk in
// eight different bank groups, so ldmatrix and the copies are free of conflicts.
__device__ __forceinline__ constexpr int swizzle(int row, int chunk) {
  return chunk ^ (kChunks >= 8 ? row % 8 : row / (8 / kChunks) % kChunks);
}

constexpr int kPieces = BK / ALIGN_K;  // copies of a row; they and THREADS are powers of two

// Copies a stage of one operand: `rows` (at most Rows) rows of BK elements, of which `depth` exist
// along k; the rest becomes zero. Rows that do not exist are left alone, because nothing of them is
// ever stored. `from` is this thread's own first piece. All other pieces lie at constant distances
// from it: kept as addresses of their own they would fill the register file.
template <int Rows>
__device__ __forceinline__ void copy_tile(unsigned destination, const dtype_t* from, int rows,
                                          long long depth) {
#pragma unroll
  for (int first = 0; first < Rows * kPieces; first += THREADS) {
    const int down = first / kPieces;
    const int right = first % kPieces * ALIGN_K;
    const int row = threadIdx.x / kPieces + down;
    const int column = threadIdx.x % kPieces * ALIGN_K + right;
    const unsigned to =
        destination + row * kRowBytes + swizzle(row, column / 8) * 16 + column % 8 * 2;
    const dtype_t* const piece = from + down * kK + right;
    if (row < rows) {
      if constexpr (ALIGN_K == 1) {  // no asynchronous copy has two bytes
        const unsigned short bits = column < depth ? piece->bits : 0;
        asm volatile("st.shared.u16 [%0], %1;" ::"r"(to), "h"(bits) : "memory");
      } else if constexpr (k % BK == 0) {
        cp_async<ALIGN_K * 2>(to, piece);
      } else {  // ALIGN_K divides k: a piece exists as a whole or not at all
        cp_async<ALIGN_K * 2>(to, piece, column < depth ? ALIGN_K * 2 : 0);
      }
    }
  }
}

// One block computes one BM x BN tile of d. Blocks walk `group` rows of tiles down before they step
// right, so that concurrent blocks share their operands in L2.
extern "C" __global__ void __launch_bounds__(THREADS)
    matmul_tiled(const dtype_t* __restrict__ a, const dtype_t* __restrict__ b,
                 dtype_t* __restrict__ d, long long m_size, int group) {
  extern __shared__ __align__(128) unsigned char shared[];
  const unsigned ring = shared_address(shared);

  const unsigned tiles_m = static_cast<unsigned>((m_size + BM - 1) / BM);
  constexpr unsigned kTilesN = static_cast<unsigned>(ceil_div(n, BN));
  const unsigned band = blockIdx.x / (group * kTilesN) * group;
  const unsigned in_band = blockIdx.x % (group * kTilesN);
  const unsigned height = ::min(tiles_m - band, static_cast<unsigned>(group));
  const long long m_first = static_cast<long long>(band + in_band % height) * BM;
  const long long n_first = static_cast<long long>(in_band / height) * BN;
  const int rows = static_cast<int>(::min(m_size - m_first, static_cast<long long>(BM)));
  const int columns = static_cast<int>(::min(kN - n_first, static_cast<long long>(BN)));
  const long long first_piece = threadIdx.x / kPieces * kK + threadIdx.x % kPieces * ALIGN_K;
  const dtype_t* from_a = a + m_first * kK + first_piece;
  const dtype_t* from_b = b + n_first * kK + first_piece;
  long long depth = kK;  // of k from the next stage to copy on

  const int lane_id = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int warp_m = warp % WARPS_M;
  const int warp_n = warp / WARPS_M % WARPS_N;
  const int warp_k = warp / (WARPS_M * WARPS_N);

  auto copy_stage = [&](int slot) {
    if (depth > 0) {
      const unsigned to = ring + slot * kStageBytes;
      copy_tile<BM>(to, from_a, rows, depth);
      copy_tile<BN>(to + BM * kRowBytes, from_b, columns, depth);
      from_a += BK;
      from_b += BK;
      depth -= BK;
    }
    cp_async_commit();  // an empty group keeps the count of groups equal to the count of stages
  };

  // ldmatrix: matrices 0..3 of a are (rows 0, k 0), (rows 8, k 0), (rows 0, k 8), (rows 8, k 8) and
  // of b (columns 0, k 0), (columns 0, k 8), (columns 8, k 0), (columns 8, k 8): the order in which
  // mma.sync wants them. A chunk's place is an XOR with its number, so a later step's address is
  // this one XOR the step.
  const int row_a = warp_m * WM + lane_id % 16;
  const int row_b = warp_n * WN + lane_id / 16 * 8 + lane_id % 8;
  const int chunk = warp_k * kSteps * 2;
  const unsigned lane_a = row_a * kRowBytes + swizzle(row_a, chunk + lane_id / 16) * 16;
  const unsigned lane_b = (BM + row_b) * kRowBytes + swizzle(row_b, chunk + lane_id / 8 % 2) * 16;
  unsigned fragment_a[2][kMmaM][4];
  unsigned fragment_b[2][kMmaN / 2][4];
  auto read_fragments = [&](int buffer, int slot, int step) {
    const unsigned stage = ring + slot * kStageBytes;
    const unsigned from_lane_a = stage + (lane_a ^ step * 32);
    const unsigned from_lane_b = stage + (lane_b ^ step * 32);
#pragma unroll
    for (int i = 0; i < kMmaM; ++i) {
      ldmatrix_x4(fragment_a[buffer][i], from_lane_a + i * 16 * kRowBytes);
    }
#pragma unroll
    for (int j = 0; j < kMmaN / 2; ++j) {
      ldmatrix_x4(fragment_b[buffer][j], from_lane_b + j * 16 * kRowBytes);
    }
  };

  float sum[kMmaM][kMmaN][4] = {};
#pragma unroll
  for (int s = 0; s < STAGES - 1; ++s) copy_stage(s);
  cp_async_wait<STAGES - 2>();
  __syncthreads();
  read_fragments(0, 0, 0);

  int slot = 0;
  int free_slot = STAGES - 1;
#pragma unroll 1
  for (int stage = 0; stage < kStageCount; ++stage) {
    const int next_slot = slot + 1 == STAGES ? 0 : slot + 1;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (step + 1 < kSteps) {
        read_fragments((step + 1) % 2, slot, step + 1);
      } else {
        // Past this barrier the next stage has arrived for all, and nobody reads this one any more.
        cp_async_wait<STAGES - 2>();
        __syncthreads();
        read_fragments((step + 1) % 2, next_slot, 0);
      }
      if (step == 0) copy_stage(free_slot);
#pragma unroll
      for (int i = 0; i < kMmaM; ++i) {
#pragma unroll
        for (int j = 0; j < kMmaN; ++j) {
          mma_m16n8k16<dtype_t>(sum[i][j], fragment_a[step % 2][i],
                                fragment_b[step % 2][j / 2][j % 2 * 2],
                                fragment_b[step % 2][j / 2][j % 2 * 2 + 1]);
        }
      }
    }
    free_slot = slot;
    slot = next_slot;
  }
  static_assert(kSteps % 2 == 0, "the fragments of the next stage's first step belong in buffer 0");
  __syncthreads();  // the last fragments read ahead: from here on the ring's memory serves the
                    // results

  if constexpr (WARPS_K > 1) {  // add the partial sums of the warps that share a tile
    constexpr int kGroup = THREADS / WARPS_K;
    float* const partial = reinterpret_cast<float*>(shared);
    const int thread = threadIdx.x % kGroup;
    constexpr int kSums = kMmaM * kMmaN * 4;
    if (warp_k > 0) {
#pragma unroll
      for (int i = 0; i < kSums; ++i) {
        partial[((warp_k - 1) * kSums + i) * kGroup + thread] =
            sum[i / (kMmaN * 4)][i / 4 % kMmaN][i % 4];
      }
    }
    __syncthreads();
    if (warp_k == 0) {
#pragma unroll
      for (int i = 0; i < kSums; ++i) {
#pragma unroll
        for (int w = 0; w < WARPS_K - 1; ++w) {
          sum[i / (kMmaN * 4)][i / 4 % kMmaN][i % 4] += partial[(w * kSums + i) * kGroup + thread];
        }
      }
    }
    __syncthreads();
  }

  if (warp_k == 0) {
    const int row = warp_m * WM + lane_id / 4;
    const int column = warp_n * WN + lane_id % 4 * 2;
    unsigned short* const staged = reinterpret_cast<unsigned short*>(shared);
#pragma unroll
    for (int i = 0; i < kMmaM; ++i) {
#pragma unroll
      for (int j = 0; j < kMmaN; ++j) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int at = (row + i * 16 + h * 8) * kStoreStride + column + j * 8;
          *reinterpret_cast<unsigned*>(staged + at) =
              pack_pair<dtype_t>(sum[i][j][2 * h], sum[i][j][2 * h + 1]);
        }
      }
    }
  }
  __syncthreads();

  constexpr int kStores = BN / ALIGN_N;  // of a row
  const unsigned short* const staged = reinterpret_cast<const unsigned short*>(shared);
#pragma unroll 4
  for (int piece = threadIdx.x; piece < BM * kStores; piece += THREADS) {
    const int row = piece / kStores;
    const int column = piece % kStores * ALIGN_N;
    if (row < rows && column < columns) {
      const auto value = load<Load::plain, ALIGN_N * 2>(staged + row * kStoreStride + column);
      store<Store::plain>(d + (m_first + row) * kN + n_first + column, value);
    }
  }
}
