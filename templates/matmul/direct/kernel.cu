// D[m, n] = A[m, k] * B[n, k]^T, row-major, 16-bit in and out, accumulated in fp32, for m <= 16.
//
// B is read once, so it goes from memory to registers and straight into mma.sync. A lane loads 8
// consecutive k of a row, 16 bytes, and the four lanes of a row 64; mma.sync gets them in pairs,
// which is another order of k than it has itself, but the same one for A and B. All loads of a
// batch, UNROLL for each row, are under way before the first is used; meanwhile other warps
// multiply.
//
// A block owns BN rows of B. Its warps take batches of k in turn; their sums meet in shared memory
// and are added in the order of the warps.

#include <kernwright/config.cuh>
#include <kernwright/mma.cuh>
#include <kernwright/types.cuh>
#include <kernwright/vector.cuh>

namespace {

using namespace kernwright;
using namespace kernwright::config;

constexpr int kRowsA = BM / 8, kRowsB = BN / 8;  // rows of a tile that a lane reads
constexpr int kLaneK = 8;                        // elements of a load
constexpr int kLoadK = 4 * kLaneK;               // of the lanes of a row together
static_assert(BATCH_K == UNROLL * kLoadK && FRAGMENTS == kRowsA * kRowsB);

// `Loads` loads of each row.
template <int Loads>
struct Batch {
  Packed<16> a[Loads][kRowsA];
  Packed<16> b[Loads][kRowsB];
};

// The rows that a lane reads, from its own first element on. Beyond the last row of A or B it is
// read again: what that gives is not stored.
struct Rows {
  const dtype_t* a[kRowsA];
  const dtype_t* b[kRowsB];
};

__device__ __forceinline__ const dtype_t* row_of(const dtype_t* matrix, int row, int rows, int k) {
  return matrix + static_cast<long long>(min(row, rows - 1)) * k + threadIdx.x % 4 * kLaneK;
}

__device__ __forceinline__ void load_batch(Batch<UNROLL>& batch, const Rows& rows, int first) {
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
#pragma unroll
    for (int i = 0; i < kRowsB; ++i) {
      batch.b[u][i] = load<Load::no_allocate, 16>(rows.b[i] + first + u * kLoadK);
    }
#pragma unroll
    for (int i = 0; i < kRowsA; ++i) {
      batch.a[u][i] = load<Load::read_only, 16>(rows.a[i] + first + u * kLoadK);
    }
  }
}

// The last columns of all: zeros from `k` on.
__device__ __forceinline__ void load_end(Batch<1>& batch, const Rows& rows, int first, int k) {
  const bool inside = first + static_cast<int>(threadIdx.x % 4) * kLaneK < k;
#pragma unroll
  for (int i = 0; i < kRowsB; ++i) {
    batch.b[0][i] = inside ? load<Load::read_only, 16>(rows.b[i] + first) : Packed<16>{};
  }
#pragma unroll
  for (int i = 0; i < kRowsA; ++i) {
    batch.a[0][i] = inside ? load<Load::read_only, 16>(rows.a[i] + first) : Packed<16>{};
  }
}

template <int Loads>
__device__ __forceinline__ void multiply(float (&sums)[kRowsB][4], const Batch<Loads>& batch) {
#pragma unroll
  for (int u = 0; u < Loads; ++u) {
    const unsigned(&upper)[4] = batch.a[u][0].word;
    const unsigned(&lower)[4] = batch.a[u][kRowsA - 1].word;
#pragma unroll
    for (int half = 0; half < 4; half += 2) {
      const unsigned a[4] = {upper[half], kRowsA == 1 ? 0 : lower[half], upper[half + 1],
                             kRowsA == 1 ? 0 : lower[half + 1]};
#pragma unroll
      for (int i = 0; i < kRowsB; ++i) {
        mma_m16n8k16<dtype_t>(sums[i], a, batch.b[u][i].word[half], batch.b[u][i].word[half + 1]);
      }
    }
  }
}

}  // namespace

// With no bound on the blocks the compiler would hold loads back to save registers.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    matmul_direct(const dtype_t* __restrict__ a, const dtype_t* __restrict__ b,
                  dtype_t* __restrict__ d, int m, int n, int k) {
  __shared__ float2 parts[WARPS][FRAGMENTS][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int first_b = static_cast<int>(blockIdx.x) * BN;
  Rows rows;
#pragma unroll
  for (int i = 0; i < kRowsA; ++i) rows.a[i] = row_of(a, i * 8 + lane / 4, m, k);
#pragma unroll
  for (int i = 0; i < kRowsB; ++i) rows.b[i] = row_of(b, first_b + i * 8 + lane / 4, n, k);

  float sums[kRowsB][4] = {};
  const int whole = k - k % BATCH_K;
#pragma unroll 1
  for (int first = warp * BATCH_K; first < whole; first += WARPS * BATCH_K) {
    Batch<UNROLL> batch;
    load_batch(batch, rows, first);
    multiply(sums, batch);
  }
#pragma unroll 1
  for (int first = whole + warp * kLoadK; first < k; first += WARPS * kLoadK) {
    Batch<1> batch;
    load_end(batch, rows, first, k);
    multiply(sums, batch);
  }

#pragma unroll
  for (int i = 0; i < kRowsA; ++i) {
#pragma unroll
    for (int j = 0; j < kRowsB; ++j) {
      parts[warp][i * kRowsB + j][lane] = {sums[j][2 * i], sums[j][2 * i + 1]};
    }
  }
  __syncthreads();
#pragma unroll 1
  for (int fragment = warp; fragment < FRAGMENTS; fragment += WARPS) {
    float2 sum = parts[0][fragment][lane];
#pragma unroll
    for (int from = 1; from < WARPS; ++from) {
      const float2 x = parts[from][fragment][lane];
      sum = {sum.x + x.x, sum.y + x.y};
    }
    const int row = fragment / kRowsB * 8 + lane / 4;
    const int column = first_b + fragment % kRowsB * 8 + lane % 4 * 2;
    dtype_t* const target = d + static_cast<long long>(row) * n + column;
    if (row < m && column < n) target[0] = from_float<dtype_t>(sum.x);
    if (row < m && column + 1 < n) target[1] = from_float<dtype_t>(sum.y);
  }
}
