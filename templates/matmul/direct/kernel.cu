// D[m, n] = A[m, k] * B[n, k]^T, row-major, 16-bit operands, accumulated in fp32, for up to 16 rows
// of A or of B. In this file `a` is the operand with few rows, m of them, and `b` the other. With
// TRANSPOSED these are the problem's b and a, and D is [n, m]. Rows of A, B and D begin lda, ldb
// and ldd elements apart.
//
// B is needed once, so it goes from memory to registers and straight into mma.sync. A lane loads 8
// consecutive k of a row, 16 bytes; the four lanes of a row load 64. mma.sync expects other k in a
// lane, but A and B are permuted alike, so the sums are the same. All loads of a batch, UNROLL for
// each row, are issued before the first is used; other warps multiply meanwhile.
//
// If k, lda or ldb does not divide by 8, rows start or end at any element. A lane then reads the
// aligned 16-byte pieces that hold its 8 UNROLL consecutive elements, one piece more than these
// would fill, and shifts them into place.
//
// A block owns BN rows of B, with a gate BN of either half. Its warps take batches of k in turn.
// Their sums meet in shared memory and are added in the order of the warps. If there are few such
// blocks and k is long, the SPLIT blocks of a cluster take a tile together: all their warps take
// batches in turn, and the first block adds the sums of all blocks in the order of the ranks.
//
// With norm=rms the rows of A are multiplied by the norm's weights in registers. A product of 8
// rows of A with themselves has the square of each row on its diagonal: one more mma for each load,
// whose sums are added like the others. The root of a row is a factor of its finished sums.
//
// The products of a batch take a row of the grid each. If the launch starts early, while the
// previous kernel still runs, a warp loads its first batch of B before it waits, and the blocks of
// the first wave prefetch the columns behind these into the L2. Later blocks have nothing to wait
// for.

#include <kernwright/config.cuh>
#include <kernwright/math/types.cuh>
#include <kernwright/math/vector.cuh>
#include <kernwright/matmul/element_shift.cuh>
#include <kernwright/matmul/few_rows.cuh>
#include <kernwright/ptx/cluster.cuh>
#include <kernwright/ptx/cp_async.cuh>
#include <kernwright/ptx/mma.cuh>
#include <kernwright/ptx/programmatic.cuh>

namespace {

using namespace kernwright;
using namespace kernwright::config;

constexpr bool kNorm = config::norm == norm_rms;
constexpr int kColumns = BN / 8;                           // groups of 8 columns of D
constexpr int kRowsA = BM / 8, kRowsB = kColumns * STACK;  // rows of a tile that a lane reads
constexpr int kGroups = kRowsA * kColumns;                 // of 8 x 8 elements of D
constexpr int kSums = kRowsB + kNorm;                      // of a row of A; the last are squares
constexpr int kLaneK = 8;                                  // elements in a load
constexpr int kLoadK = 4 * kLaneK;                         // elements in the loads of a row's lanes
static_assert(BATCH_K == UNROLL * kLoadK && FRAGMENTS == kRowsA * kSums);

// The operands that a lane loads before it multiplies: `Loads` loads of each of its rows.
template <int Loads>
struct Batch {
  Packed<16> a[Loads][kRowsA];
  Packed<16> b[Loads][kRowsB];
  Packed<16> weights[Loads];  // of the norm
};

// The rows that a lane reads. Instead of rows beyond the last one of A or B it reads the last one
// again; the results are not stored.
struct Rows {
  const dtype_t* a[kRowsA];
  const dtype_t* b[kRowsB];
  const dtype_t* weights;
};

__device__ __forceinline__ const dtype_t* row_of(const dtype_t* matrix, int row, int rows,
                                                 int pitch) {
  return matrix + static_cast<long long>(min(row, rows - 1)) * pitch;
}

// Prefetches columns `from` to `to` of a block's rows of b into the L2; in a cluster each block
// takes a share of them. The previous kernel may still run. If it writes b after all, its writes go
// through the L2 too and replace the prefetched lines.
__device__ __forceinline__ void prefetch_rows(const dtype_t* b, int first_b, int n, int ldb,
                                              int from, int to, int rank) {
  constexpr int kLine = 128 / sizeof(dtype_t);
#pragma unroll 1
  for (int i = threadIdx.x / 32; i < BN * STACK; i += WARPS) {
    const int row = first_b + i % BN;
    const dtype_t* const first = b + (static_cast<long long>(i / BN) * n + row) * ldb;
#pragma unroll 1
    for (int at = from + (rank * 32 + threadIdx.x % 32) * kLine; at < to && row < n;
         at += SPLIT * 32 * kLine) {
      prefetch_line(first + at);
    }
  }
}

// 8 UNROLL consecutive elements, which may begin at any element.
struct Elements {
  unsigned words[UNROLL * 4 + 4];
  int shift;  // elements of the first piece that come before them

  // Also reads up to 8 elements after the last.
  __device__ __forceinline__ void read(const dtype_t* first) {
    shift = static_cast<int>(reinterpret_cast<unsigned long long>(first) % 16 / 2);
#pragma unroll
    for (int i = 0; i <= UNROLL; ++i) {
      const auto piece = load<Load::read_only, 16>(first - shift + i * 8);
#pragma unroll
      for (int j = 0; j < 4; ++j) words[i * 4 + j] = piece.word[j];
    }
  }
  __device__ __forceinline__ void align() { shift_elements<UNROLL * 4>(words, shift); }
  __device__ __forceinline__ Packed<16> eight(int i) const {
    return {{words[i * 4], words[i * 4 + 1], words[i * 4 + 2], words[i * 4 + 3]}};
  }
};

// Loads the weights of the norm, from load to load `distance` elements apart.
template <int Loads>
__device__ __forceinline__ void load_weights(Batch<Loads>& batch, const dtype_t* weights,
                                             int distance) {
  if constexpr (kNorm) {
#pragma unroll
    for (int u = 0; u < Loads; ++u) {
      batch.weights[u] = load<Load::no_allocate, 16>(weights + u * distance);
    }
  }
}

__device__ __forceinline__ void load_anywhere(Batch<UNROLL>& batch, const Rows& rows, int first) {
  Elements a[kRowsA], b[kRowsB];
  first += threadIdx.x % 4 * (UNROLL * 8);
#pragma unroll
  for (int i = 0; i < kRowsB; ++i) b[i].read(rows.b[i] + first);
#pragma unroll
  for (int i = 0; i < kRowsA; ++i) a[i].read(rows.a[i] + first);
  load_weights(batch, rows.weights + first, kLaneK);
#pragma unroll
  for (int i = 0; i < kRowsB; ++i) {
    b[i].align();
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) batch.b[u][i] = b[i].eight(u);
  }
#pragma unroll
  for (int i = 0; i < kRowsA; ++i) {
    a[i].align();
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) batch.a[u][i] = a[i].eight(u);
  }
}

__device__ __forceinline__ void load_aligned_b(Batch<UNROLL>& batch, const Rows& rows, int first) {
  first += threadIdx.x % 4 * kLaneK;
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
#pragma unroll
    for (int i = 0; i < kRowsB; ++i) {
      batch.b[u][i] = load<Load::no_allocate, 16>(rows.b[i] + first + u * kLoadK);
    }
  }
  load_weights(batch, rows.weights + first, kLoadK);
}

__device__ __forceinline__ void load_aligned_a(Batch<UNROLL>& batch, const Rows& rows, int first) {
  first += threadIdx.x % 4 * kLaneK;
#pragma unroll
  for (int i = 0; i < kRowsA; ++i) {
    const dtype_t* const from = rows.a[i] + first;
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      batch.a[u][i] = load<Load::read_only, 16>(from + u * kLoadK);
    }
  }
}

// Loads the 8 elements of a row from column `first` on, with zeros from column `k` on.
__device__ __forceinline__ Packed<16> load_eight(const dtype_t* row, int first, int k) {
  if constexpr (ALIGNED_K) {
    return first < k ? load<Load::read_only, 16>(row + first) : Packed<16>{};
  }
  Packed<16> x{};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const unsigned bits = first + i < k ? row[first + i].bits : 0;
    x.word[i / 2] |= bits << i % 2 * 16;
  }
  return x;
}

__device__ __forceinline__ void load_end(Batch<1>& batch, const Rows& rows, int first, int k) {
  first += threadIdx.x % 4 * kLaneK;
#pragma unroll
  for (int i = 0; i < kRowsB; ++i) batch.b[0][i] = load_eight(rows.b[i], first, k);
#pragma unroll
  for (int i = 0; i < kRowsA; ++i) batch.a[0][i] = load_eight(rows.a[i], first, k);
  if constexpr (kNorm) batch.weights[0] = load_eight(rows.weights, first, k);
}

// A lane's accumulators: products of rows of a with rows of b, and with a norm products of 8 rows
// of a with themselves, which have the squares of the rows on their diagonals.
struct Acc {
  float products[kRowsB][4] = {};
  float squares[kRowsA][4] = {};

  template <int Loads>
  __device__ __forceinline__ void add(Batch<Loads>& batch) {
#pragma unroll
    for (int u = 0; u < Loads; ++u) {
      if constexpr (kNorm) {
        add_rows(squares, batch.a[u], batch.a[u]);
        weigh(batch.a[u], batch.weights[u]);
      }
      add_rows(products, batch.a[u], batch.b[u]);
    }
  }
  // Stores the sums as fragments of 8 x 8.
  __device__ __forceinline__ void store(float2 (*fragments)[32], int lane) const {
#pragma unroll
    for (int i = 0; i < kRowsA; ++i) {
#pragma unroll
      for (int j = 0; j < kRowsB; ++j) {
        fragments[i * kSums + j][lane] = {products[j][2 * i], products[j][2 * i + 1]};
      }
      if constexpr (kNorm) {
        fragments[i * kSums + kRowsB][lane] = {squares[i][2 * i], squares[i][2 * i + 1]};
      }
    }
  }

 private:
  template <int RowsB>
  static __device__ __forceinline__ void add_rows(float (&acc)[RowsB][4],
                                                  const Packed<16> (&a)[kRowsA],
                                                  const Packed<16> (&b)[RowsB]) {
    const unsigned(&upper)[4] = a[0].word;
    const unsigned(&lower)[4] = a[kRowsA - 1].word;
#pragma unroll
    for (int half = 0; half < 4; half += 2) {
      const unsigned words[4] = {upper[half], kRowsA == 1 ? 0 : lower[half], upper[half + 1],
                                 kRowsA == 1 ? 0 : lower[half + 1]};
#pragma unroll
      for (int i = 0; i < RowsB; ++i) {
        mma_m16n8<dtype_t>(acc[i], words, b[i].word[half], b[i].word[half + 1]);
      }
    }
  }
  static __device__ __forceinline__ void weigh(Packed<16> (&a)[kRowsA], const Packed<16>& weights) {
#pragma unroll
    for (Packed<16>& row : a) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        row.word[i] = multiply_words<dtype_t>(row.word[i], weights.word[i]);
      }
    }
  }
};

// Return the fragment of `parts` with the sums of a group of D, their upper or, with a gate, their
// lower half, and the fragment with the squares of the group's rows of a.
__device__ __forceinline__ int fragment_of(int group, int half) {
  return group / kColumns * kSums + half * kColumns + group % kColumns;
}
__device__ __forceinline__ int squares_of(int group) { return group / kColumns * kSums + kRowsB; }

// Adds the sums of `Count` parts in their order.
template <int Count>
__device__ __forceinline__ float2 add_up(const float2 (*parts)[FRAGMENTS][32], int fragment,
                                         int lane) {
  float2 sum = parts[0][fragment][lane];
#pragma unroll
  for (int from = 1; from < Count; ++from) {
    const float2 x = parts[from][fragment][lane];
    sum = {sum.x + x.x, sum.y + x.y};
  }
  return sum;
}

}  // namespace

// The bound of one block for each multiprocessor lets the compiler use registers. Without it the
// compiler delays loads to save them.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    matmul_direct(KW_PARAMETERS(matmul_direct)) {
  // The sums of the block's warps and, in the first block of a cluster, the sums of its blocks.
  __shared__ float2 parts[WARPS + (SPLIT > 1 ? SPLIT : 0)][FRAGMENTS][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int rank = blockIdx.x % SPLIT;
  const int first_b = static_cast<int>(blockIdx.x / SPLIT) * BN;
  if constexpr (SPLIT > 1) cluster_arrive_relaxed();
  if constexpr (batch > 1) {
    const long long index = blockIdx.y;
    a += index * m * lda;
    b += index * STACK * n * ldb;
    d += index * (TRANSPOSED ? n : m) * ldd;
    if constexpr (kResidual) residual += index * m * n;
  }
  Rows rows;
#pragma unroll
  for (int i = 0; i < kRowsA; ++i) rows.a[i] = row_of(a, i * 8 + lane / 4, m, lda);
#pragma unroll
  for (int i = 0; i < kRowsB; ++i) {
    const dtype_t* const half = b + static_cast<long long>(i / kColumns) * n * ldb;
    rows.b[i] = row_of(half, first_b + i % kColumns * 8 + lane / 4, n, ldb);
  }
  rows.weights = norm_weight;
  if (!reads_operands(alpha)) k = 0;
  const int batched = ALIGNED_K ? k : max(k - 8, 0);  // shifted rows read up to 8 more elements
  const int whole = batched - batched % BATCH_K;
  constexpr int kTurns = SPLIT * WARPS;
  const int turn = rank * WARPS + warp;
  int first = turn * BATCH_K;

  Batch<UNROLL> batch_ahead;
  const bool reads_ahead = AHEAD_K > 0 && ahead && first < whole;
  if (reads_ahead) load_aligned_b(batch_ahead, rows, first);
  if (blockIdx.y * gridDim.x + blockIdx.x < early) {
    prefetch_rows(b, first_b, n, ldb, ahead ? AHEAD_K : 0, EARLY_K, rank);
  }
  // The code behind the wait needs these at once, so they are computed before it.
#pragma unroll
  for (int i = 0; i < kRowsA; ++i) asm volatile("" : "+l"(rows.a[i]));
  release_next_kernel();
  await_previous_kernel();
  if (reads_ahead) load_aligned_a(batch_ahead, rows, first);

  const FewRows target(d, alpha, bias, beta, residual, m, n, ldd, d_k, d_v);
  // The elements of D that a lane finishes in a group: one row of a and two rows of b.
  const auto row_a_of = [&](int group) { return group / kColumns * 8 + lane / 4; };
  const auto row_b_of = [&](int group) { return first_b + group % kColumns * 8 + lane % 4 * 2; };
  FewRows::Addends addends[2] = {};
  const auto load_addends = [&](int group) {
#pragma unroll
    for (int i = 0; i < 2; ++i) addends[i] = target.addends(row_a_of(group), row_b_of(group) + i);
  };
  if (warp < kGroups && rank == 0) load_addends(warp);

  Acc acc;
  if (reads_ahead) {
    acc.add(batch_ahead);
    first += kTurns * BATCH_K;
  }
#pragma unroll 1
  for (; first < whole; first += kTurns * BATCH_K) {
    Batch<UNROLL> batch;
    if constexpr (ALIGNED_K) {
      load_aligned_b(batch, rows, first);
      load_aligned_a(batch, rows, first);
    } else {
      load_anywhere(batch, rows, first);
    }
    acc.add(batch);
  }
#pragma unroll 1
  for (int end = whole + turn * kLoadK; end < k; end += kTurns * kLoadK) {
    Batch<1> batch;
    load_end(batch, rows, end, k);
    acc.add(batch);
  }
  acc.store(parts[warp], lane);
  __syncthreads();
  if constexpr (SPLIT > 1) {
    cluster_wait();  // the first block runs, so its memory may be written
#pragma unroll 1
    for (int fragment = warp; fragment < FRAGMENTS; fragment += WARPS) {
      const void* const place = &parts[WARPS + rank][fragment][lane];
      cluster_put(cluster_address(shared_address(place), 0), add_up<WARPS>(parts, fragment, lane));
    }
    cluster_arrive();
    if (rank != 0) return;
    cluster_wait();
  }
#pragma unroll 1
  for (int group = warp; group < kGroups; group += WARPS) {
    const auto sum_of = [&](int fragment, int place) {
      return SPLIT == 1 ? add_up<WARPS>(parts, fragment, place)
                        : add_up<SPLIT>(parts + WARPS, fragment, place);
    };
    float2 sum = sum_of(fragment_of(group, 0), lane);
    float2 other = STACK == 1 ? sum : sum_of(fragment_of(group, 1), lane);
    if constexpr (kNorm) {
      const int row = lane / 4;
      const float2 squares = sum_of(squares_of(group), row * 4 + row / 2);
      const float square = row % 2 == 0 ? squares.x : squares.y;
      const float root = k == 0 ? 1 : rsqrtf(__fdividef(square, static_cast<float>(k)) + eps);
      sum = {sum.x * root, sum.y * root};
      other = {other.x * root, other.y * root};
    }
    if (group != warp) load_addends(group);
    target.store(row_a_of(group), row_b_of(group), sum.x, other.x, addends[0]);
    target.store(row_a_of(group), row_b_of(group) + 1, sum.y, other.y, addends[1]);
  }
}
