#include <kernwright/config.cuh>
#include <kernwright/math/vector.cuh>
#include <kernwright/matmul/epilogue.cuh>
#include <kernwright/matmul/split.cuh>
#include <kernwright/ptx/cp_async.cuh>
#include <kernwright/ptx/ldmatrix.cuh>
#include <kernwright/ptx/mma.cuh>
#include <kernwright/ptx/programmatic.cuh>
#include <kernwright/tile/accumulator.cuh>

using namespace kernwright;
using namespace kernwright::config;

constexpr int kElement = sizeof(dtype_t);
constexpr int kSteps = BK / 16 / WARPS_K;  // steps of 32 bytes of k that a warp takes in a stage
constexpr int kMmaM = WM / 16;
constexpr int kMmaN = WN / 8;
constexpr bool kNk = b_layout == b_layout_nk;
constexpr int kRowBytes = BK * 2;                     // a row of a, or of b as [n, k], in a stage
constexpr int kRowBytesB = kNk ? kRowBytes : BN * 2;  // b as [k, n] has a row for each k
constexpr int kStageBytes = (BM + BN) * kRowBytes;
constexpr int kStageCount = static_cast<int>(ceil_div(k, DEPTH));  // along k
// Elements from one staged row of the result to the next: 16 bytes of padding avoid bank conflicts.
constexpr int kStoreStride = BN + 16 / STAGED_BYTES;
constexpr long long kK = k;
constexpr long long kN = n;
// Elements from a row to the next.
constexpr long long kPitchA = lda;
constexpr long long kPitchB = ldb;
constexpr long long kPitchD = ldd;

// Returns the place of 16-byte chunk `chunk` in row `row` of a stage. Any eight consecutive rows
// hold the same chunk in eight different bank groups, so ldmatrix and the copies have no bank
// conflicts.
template <int RowBytes>
__device__ __forceinline__ constexpr int swizzle(int row, int chunk) {
  constexpr int kChunks = RowBytes / 16;
  return chunk ^ (kChunks >= 8 ? row % 8 : row / (8 / kChunks) % kChunks);
}

// Copies a stage of an operand: rows of `Columns` elements in pieces of `Align`. Rows are the
// operand's rows and columns run along k; with RowsAreK rows run along k. Pieces beyond `depth` of
// k become zero. Pieces beyond the `outer` rows or columns of the operand are not copied, because
// their results are never stored. An operand of `Stack` matrices, n rows or columns apart, takes an
// equal share of the tile from each. `from` is this thread's first piece. All its other pieces are
// at constant distances from that one: as addresses of their own they would fill the registers.
template <int Rows, int Columns, int Align, long long Pitch, bool RowsAreK, int Stack>
__device__ __forceinline__ void copy_tile(unsigned destination, const dtype_t* from, int outer,
                                          long long depth) {
  constexpr int kPieces = Columns / Align;  // in a row; they and THREADS are powers of two
  constexpr int kBytes = Align * kElement;
  constexpr int kShare = (RowsAreK ? Columns : Rows) / Stack;  // of one matrix in the tile
  constexpr long long kToNext = (kN - kShare) * (RowsAreK ? 1 : Pitch);
#pragma unroll
  for (int first = 0; first < Rows * kPieces; first += THREADS) {
    const int down = first / kPieces;
    const int right = first % kPieces * Align;
    const int row = threadIdx.x / kPieces + down;
    const int column = threadIdx.x % kPieces * Align + right;
    const int byte = column * kElement;
    const unsigned to = destination + row * Columns * kElement +
                        swizzle<Columns * kElement>(row, byte / 16) * 16 + byte % 16;
    const int across = RowsAreK ? column : row;
    const int matrix = Stack == 1 ? 0 : across / kShare;
    const dtype_t* const piece = from + down * Pitch + right + matrix * kToNext;
    const bool exists = (RowsAreK ? row : column) < depth;
    const bool inside = Rows * kPieces >= THREADS || row < Rows;  // else some threads have no piece
    if (inside && across - matrix * kShare < outer) {
      if constexpr (kBytes < 4) {  // no asynchronous copy is that short
        const unsigned bits = exists ? load<Load::plain, kBytes>(piece).word[0] : 0;
        if constexpr (kBytes == 2) {
          asm volatile("st.shared.u16 [%0], %1;" ::"r"(to), "r"(bits) : "memory");
        } else {
          asm volatile("st.shared.u8 [%0], %1;" ::"r"(to), "r"(bits) : "memory");
        }
      } else if constexpr (k % DEPTH == 0) {
        cp_async<kBytes>(to, piece);
      } else {  // a piece exists as a whole or not at all
        cp_async<kBytes>(to, piece, exists ? kBytes : 0);
      }
    }
  }
}

// Returns the offset of this thread's first piece of such a tile, in elements.
template <int Columns, int Align, long long Pitch>
__device__ __forceinline__ long long first_piece() {
  constexpr int kPieces = Columns / Align;
  return threadIdx.x / kPieces * Pitch + threadIdx.x % kPieces * Align;
}

// Computes sum += a * b^T for one step of 32 bytes of k. fp8 is widened to fp16. A lane's word of
// fp8 holds four neighbours of k, while mma.sync expects two pairs; a and b are permuted alike, so
// the sums are the same.
template <typename T>
__device__ __forceinline__ void multiply(float (&sum)[kMmaM][kMmaN][4],
                                         const unsigned (&a)[kMmaM][4],
                                         const unsigned (&b)[kMmaN / 2][4]) {
  if constexpr (sizeof(T) >= 2 || kIsInt8<T>) {
#pragma unroll
    for (int i = 0; i < kMmaM; ++i) {
#pragma unroll
      for (int j = 0; j < kMmaN; ++j) {
        mma_m16n8<T>(sum[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
      }
    }
  } else {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      unsigned wide[kMmaM][4];
#pragma unroll
      for (int i = 0; i < kMmaM; ++i) {
        widen_e4m3(a[i][2 * half], wide[i][0], wide[i][2]);
        widen_e4m3(a[i][2 * half + 1], wide[i][1], wide[i][3]);
      }
#pragma unroll
      for (int j = 0; j < kMmaN; ++j) {
        unsigned low, high;
        widen_e4m3(b[j / 2][j % 2 * 2 + half], low, high);
#pragma unroll
        for (int i = 0; i < kMmaM; ++i) mma_m16n8<fp16>(sum[i][j], wide[i], low, high);
      }
    }
  }
}

constexpr bool kScaled = scaling == scaling_block;
constexpr int kBlock = 128;  // of k, and rows of b, that share a scale

// The scales of a thread's sums, from its first row and column on. Rows and columns beyond the last
// take the scales of the last, since their results are not stored.
struct Scales {
  const float* a;  // of the first row, [ceil(k / 128), m]
  const float* b;  // of all rows of b, [ceil(rows / 128), lds]
  long long m_size;
  int last_row;         // from the first one on
  int n_first, column;  // the tile's first column, and the thread's in the tile

  // Adds to `sum` the sums over a stage, multiplied by the scales of its block of k.
  __device__ __forceinline__ void promote(float (&sum)[kMmaM][kMmaN][4],
                                          const float (&part)[kMmaM][kMmaN][4], int block) const {
    float of_a[kMmaM][2];
#pragma unroll
    for (int i = 0; i < kMmaM; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h)
        of_a[i][h] = (a + block * m_size)[::min(i * 16 + h * 8, last_row)];
    }
    const float of_first = of_column(0, block);
#pragma unroll
    for (int j = 0; j < kMmaN; ++j) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        // Columns of a warp are in one block, except that a gate's columns and the columns that it
        // opens are in two.
        const float of_b = STACK == 1 ? of_first : of_column(j * 8 + c, block);
#pragma unroll
        for (int i = 0; i < kMmaM; ++i) {
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            sum[i][j][2 * h + c] += of_a[i][h] * of_b * part[i][j][2 * h + c];
          }
        }
      }
    }
  }

 private:
  __device__ __forceinline__ float of_column(int after, int block) const {
    const int in_tile = column + after;
    const int in_matrix = ::min(n_first + in_tile % COLUMNS, static_cast<int>(n - 1));
    const int row_b = in_tile / COLUMNS * n + in_matrix;
    return b[row_b / kBlock * lds + block];
  }
};

// Stages two neighbours of the result: rounded to 16 bits or, if an epilogue follows or the result
// has another width, as fp32.
template <typename Out>
__device__ __forceinline__ void stage_pair(unsigned char* to, float first, float second) {
  if constexpr (STAGED_BYTES == sizeof(Out) && sizeof(Out) == 2) {
    *reinterpret_cast<unsigned*>(to) = pack_pair<Out>(first, second);
  } else {
    *reinterpret_cast<float2*>(to) = {first, second};
  }
}

// Returns a finished piece of the result, read from where it is staged. A gate's other half is
// staged COLUMNS further on in the same row.
template <typename Out, int Count>
__device__ __forceinline__ Packed<Count * sizeof(Out)> finish_piece(const unsigned char* staged,
                                                                    const Epilogue& epilogue,
                                                                    long long row, int column) {
  if constexpr (STAGED_BYTES == sizeof(Out) && sizeof(Out) == 2) {
    return load<Load::plain, Count * sizeof(Out)>(staged);
  } else {
    float x[Count];
#pragma unroll
    for (int i = 0; i < Count; ++i) x[i] = reinterpret_cast<const float*>(staged)[i];
    if constexpr (kGated) {
#pragma unroll
      for (int i = 0; i < Count; ++i) {
        x[i] = epilogue.gated(x[i], reinterpret_cast<const float*>(staged)[i + COLUMNS], row,
                              column + i);
      }
    } else {
      epilogue.apply(x, row, column);
    }
    return pack<Out, Count * sizeof(Out)>(x);
  }
}

// Computes one BM x COLUMNS tile of d in a block. COLUMNS is BN or, with a gate, half of it. Blocks
// walk GROUP rows of tiles down before they step right, so that concurrent blocks share operands
// in the L2. The blocks of a batch's products follow each other, as the products do.
extern "C" __global__ void __launch_bounds__(THREADS) matmul_tiled(KW_PARAMETERS(matmul_tiled)) {
  extern __shared__ __align__(128) unsigned char shared[];
  const unsigned ring = shared_address(shared);
  await_previous_kernel();
  release_next_kernel();

  const unsigned tiles_m = static_cast<unsigned>((m + BM - 1) / BM);
  constexpr unsigned kTilesN = static_cast<unsigned>(ceil_div(n, COLUMNS));
  unsigned tile = blockIdx.x;
  if constexpr (batch > 1) {
    const long long index = tile / (tiles_m * kTilesN);
    tile %= tiles_m * kTilesN;
    a += index * m * kPitchA;
    b += index * (kNk ? STACK * kN : kK) * kPitchB;
    d += index * m * kPitchD;
    if constexpr (kResidual) residual += index * m * kN;
    if constexpr (kScaled) {
      scale_a += index * ceil_div(k, kBlock) * m;
      scale_b += index * ceil_div(STACK * n, kBlock) * lds;
    }
    if constexpr (kRowScaled) {
      scale_a += index * m;
      scale_b += index * STACK * n;
    }
  }
  const unsigned band = tile / (GROUP * kTilesN) * GROUP;
  const unsigned in_band = tile % (GROUP * kTilesN);
  const unsigned height = ::min(tiles_m - band, static_cast<unsigned>(GROUP));
  const long long m_first = static_cast<long long>(band + in_band % height) * BM;
  const long long n_first = static_cast<long long>(in_band / height) * COLUMNS;
  const int rows = static_cast<int>(::min(m - m_first, static_cast<long long>(BM)));
  const int columns = static_cast<int>(::min(kN - n_first, static_cast<long long>(COLUMNS)));
  const dtype_t* from_a = a + m_first * kPitchA + first_piece<DEPTH, ALIGN_A, kPitchA>();
  const dtype_t* from_b =
      b + n_first * (kNk ? kPitchB : 1) + first_piece<kNk ? DEPTH : BN, ALIGN_B, kPitchB>();
  // The rest of k from the next stage to copy on, and the number of stages in all.
  long long depth = reads_operands(alpha) ? kK : 0;
  const int stages = reads_operands(alpha) ? kStageCount : 0;

  const int lane_id = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int warp_m = warp % WARPS_M;
  const int warp_n = warp / WARPS_M % WARPS_N;
  const int warp_k = warp / (WARPS_M * WARPS_N);

  auto copy_stage = [&](int slot) {
    if (depth > 0) {
      const unsigned to = ring + slot * kStageBytes;
      copy_tile<BM, DEPTH, ALIGN_A, kPitchA, false, 1>(to, from_a, rows, depth);
      if constexpr (kNk) {
        copy_tile<BN, DEPTH, ALIGN_B, kPitchB, false, STACK>(to + BM * kRowBytes, from_b, columns,
                                                             depth);
      } else {
        copy_tile<DEPTH, BN, ALIGN_B, kPitchB, true, STACK>(to + BM * kRowBytes, from_b, columns,
                                                            depth);
      }
      from_a += DEPTH;
      from_b += DEPTH * (kNk ? 1 : kPitchB);
      depth -= DEPTH;
    }
    cp_async_commit();  // an empty group keeps the count of groups equal to the count of stages
  };

  // ldmatrix: matrices 0..3 of a are (rows 0, k 0), (rows 8, k 0), (rows 0, k 8), (rows 8, k 8) and
  // of b (columns 0, k 0), (columns 0, k 8), (columns 8, k 0), (columns 8, k 8): the order that
  // mma.sync expects. A chunk's place is an XOR with its number, so the address of a later step is
  // this one XOR the step. If b is [k, n], ldmatrix transposes the matrices, a step is 16 rows, and
  // the XOR reaches later columns.
  const int row_a = warp_m * WM + lane_id % 16;
  const int row_b = warp_n * WN + lane_id / 16 * 8 + lane_id % 8;
  const int chunk = warp_k * kSteps * 2;
  const unsigned lane_a = row_a * kRowBytes + swizzle<kRowBytes>(row_a, chunk + lane_id / 16) * 16;
  const int row_k = warp_k * kSteps * 16 + lane_id % 16;
  const unsigned lane_b =
      BM * kRowBytes +
      (kNk ? row_b * kRowBytes + swizzle<kRowBytes>(row_b, chunk + lane_id / 8 % 2) * 16
           : row_k * kRowBytesB + swizzle<kRowBytesB>(row_k, warp_n * WN / 8 + lane_id / 16) * 16);
  unsigned fragment_a[2][kMmaM][4];
  unsigned fragment_b[2][kMmaN / 2][4];
  auto read_fragments = [&](int buffer, int slot, int step) {
    const unsigned stage = ring + slot * kStageBytes;
    const unsigned from_lane_a = stage + (lane_a ^ step * 32);
    const unsigned from_lane_b =
        stage + (kNk ? lane_b ^ step * 32 : lane_b + step * 16 * kRowBytesB);
#pragma unroll
    for (int i = 0; i < kMmaM; ++i) {
      ldmatrix_x4(fragment_a[buffer][i], from_lane_a + i * 16 * kRowBytes);
    }
#pragma unroll
    for (int j = 0; j < kMmaN / 2; ++j) {
      if constexpr (kNk) {
        ldmatrix_x4(fragment_b[buffer][j], from_lane_b + j * 16 * kRowBytes);
      } else {
        ldmatrix_transposed_x4(fragment_b[buffer][j], from_lane_b ^ j * 32);
      }
    }
  };

  const int first_row = warp_m * WM + lane_id / 4;
  const int first_column = warp_n * WN + lane_id % 4 * 2;
  const long long last_row = ::min(m - 1 - m_first - first_row, static_cast<long long>(BM));
  const Scales scales{scale_a + ::min(m_first + first_row, m - 1),
                      scale_b,
                      m,
                      ::max(static_cast<int>(last_row), 0),
                      static_cast<int>(n_first),
                      first_column};
  float sum[kMmaM][kMmaN][4] = {};
  float part[kMmaM][kMmaN][4] = {};  // of a stage, if it has scales
#pragma unroll
  for (int s = 0; s < STAGES - 1; ++s) copy_stage(s);
  cp_async_wait<STAGES - 2>();
  __syncthreads();
  read_fragments(0, 0, 0);

  int slot = 0;
  int free_slot = STAGES - 1;
#pragma unroll 1
  for (int stage = 0; stage < stages; ++stage) {
    const int next_slot = slot + 1 == STAGES ? 0 : slot + 1;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (step + 1 < kSteps) {
        read_fragments((step + 1) % 2, slot, step + 1);
      } else {
        // After this barrier the next stage has landed for all, and no warp reads this one any
        // more.
        cp_async_wait<STAGES - 2>();
        __syncthreads();
        read_fragments((step + 1) % 2, next_slot, 0);
      }
      if (step == 0) copy_stage(free_slot);
      multiply<dtype_t>(kScaled ? part : sum, fragment_a[step % 2], fragment_b[step % 2]);
    }
    if constexpr (kScaled) {
      scales.promote(sum, part, stage * DEPTH / kBlock);
#pragma unroll
      for (int i = 0; i < kMmaM * kMmaN * 4; ++i) part[i / (kMmaN * 4)][i / 4 % kMmaN][i % 4] = 0;
    }
    free_slot = slot;
    slot = next_slot;
  }
  static_assert(kSteps % 2 == 0, "the fragments of the next stage's first step belong in buffer 0");
  __syncthreads();  // the last fragments read ahead: from here on the ring's memory serves the
                    // results
#pragma unroll
  for (int i = 0; i < kMmaM; ++i) {
#pragma unroll
    for (int j = 0; j < kMmaN; ++j) convert_sums<dtype_t>(sum[i][j]);
  }

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
#pragma unroll
    for (int i = 0; i < kMmaM; ++i) {
#pragma unroll
      for (int j = 0; j < kMmaN; ++j) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int at = (first_row + i * 16 + h * 8) * kStoreStride + first_column + j * 8;
          stage_pair<out_t>(shared + at * STAGED_BYTES, sum[i][j][2 * h], sum[i][j][2 * h + 1]);
        }
      }
    }
  }
  __syncthreads();

  constexpr int kStores = COLUMNS / ALIGN_D;  // of a row
  const Epilogue epilogue(alpha, bias, beta, residual, m, n, {scale_a, scale_b});
  const Output<long long> output{d, d_k, d_v, kN, kPitchD};
#pragma unroll 4
  for (int piece = threadIdx.x; piece < BM * kStores; piece += THREADS) {
    const int row = piece / kStores;
    const int column = piece % kStores * ALIGN_D;
    if (row < rows && column < columns) {
      const unsigned char* const staged = shared + (row * kStoreStride + column) * STAGED_BYTES;
      const auto value = finish_piece<out_t, ALIGN_D>(staged, epilogue, m_first + row,
                                                      static_cast<int>(n_first) + column);
      store<Store::plain>(output.at(m_first + row, n_first + column), value);
    }
  }
}
