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

#include <kernwright/cluster.cuh>
#include <kernwright/config.cuh>
#include <kernwright/mbarrier.cuh>
#include <kernwright/pad_rows.cuh>
#include <kernwright/programmatic.cuh>
#include <kernwright/split.cuh>
#include <kernwright/stmatrix.cuh>
#include <kernwright/tma.cuh>
#include <kernwright/types.cuh>
#include <kernwright/wgmma.cuh>
#include <kernwright/wgmma_epilogue.cuh>

namespace {

using namespace kernwright;
using namespace kernwright::config;

constexpr int kCluster = CM * CN;
constexpr int kRowBytes = 128;  // of a TMA box: the swizzle's span
constexpr int kBoxK = kRowBytes / sizeof(dtype_t);
constexpr int kBoxes = DEPTH / kBoxK;    // boxes along k of a stage
constexpr int kBlocks = BM / TEAM / 64;  // 64-row blocks per consumer
constexpr int kChunks =
    (COLUMNS + CHUNK - 1) / CHUNK;  // per block; the last one overlaps its neighbour if need be
constexpr int kStores = kBlocks * kChunks;
// LATE, a tile's columns are finished piece by piece, one a k step. The two special functions of an
// element take a warp 8 clocks a column and a step of its products 2 * BN: a piece takes no longer.
constexpr int kPiece = BN >= 160 ? 32 : 16;
constexpr int kPieces = (COLUMNS + kPiece - 1) / kPiece;
constexpr int kLeaving = LATE ? kPieces : kStores;  // k steps in which a waiting tile leaves
constexpr int kWarpRows = 16;
constexpr int kWords = kWarpRows * kRowBytes / (4 * 32);  // of a thread's share of a chunk
constexpr int kStagingBuffers = 2;
constexpr int kAddendStages = (kBias ? 1 : 0) + (kResidual ? kChunks : 0);  // behind a tile's own
// The chunks of the last tile leave through A, where each consumer has rows of its own, or, wide
// ones, through B too, once all have read it.
constexpr bool kThroughB = STAGES * kBoxes < kChunks;
// As [k, n], B comes in boxes of 64 columns and all of a stage's k; a cluster's slices are of k
// then. Else a stage's B is SLICES boxes for each kBoxK of k, and where these are no CM parts, the
// blocks that share it load all of it by turns.
constexpr Major kMajorB = b_layout == b_layout_kn ? Major::mn : Major::k;
constexpr bool kTurns = kMajorB == Major::k && SLICES < CM;
constexpr unsigned kBlockBytesB = DEPTH * kRowBytes;  // of such a box

// Shared memory from the first address that is a multiple of 1024, which the swizzle needs.
struct Storage {
  unsigned char a[STAGES][kBoxes][BM * kRowBytes];
  unsigned char b[STAGES][kBoxes][BN * kRowBytes];
  unsigned char staging[CONSUMERS * 4][kStagingBuffers][kWarpRows * kRowBytes];
  unsigned long long full[STAGES];   // bytes of a stage have landed in this block
  unsigned long long empty[STAGES];  // all who read what this block's loads overwrite are done
};
static_assert(sizeof(Storage) + 1024 == SMEM_BYTES);
static_assert(sizeof(Storage::a) % 1024 == 0 && sizeof(Storage::b) % 1024 == 0);
static_assert(BM % (64 * TEAM) == 0 && COLUMNS % 8 == 0 && DEPTH % kBoxK == 0);
static_assert(BN % (8 * SLICES) == 0 && SLICES % STACK == 0 && COLUMNS >= CHUNK);
static_assert(kTurns || SLICES % CM == 0);
static_assert(kMajorB == Major::k || (COLUMNS % 64 == 0 && DEPTH % (8 * CM) == 0));
static_assert(!PROMOTED || DEPTH <= 128, "more products than the tensor cores may sum");
static_assert(CHUNK * sizeof(out_t) == kRowBytes, "a staged row is one span of the swizzle");
static_assert(kChunks * BM * kRowBytes <= STAGES * STAGE_BYTES,
              "the last tile leaves through the ring");
static_assert(!PINGPONG || (CONSUMERS == 2 && !OVERLAP && !PROMOTED));
static_assert(!PINGPONG || kAddendStages + 2 <= STAGES, "awaited while two stages are held");
static_assert(!LATE || (kBlocks == 1 && CHUNK % kPiece == 0));

// Exact for quotients below 2^21; integer division would cost a third of a microsecond before the
// first load.
__device__ __forceinline__ int divide(int numerator, int denominator, int& remainder) {
  int quotient =
      static_cast<int>(__fdividef(static_cast<float>(numerator), static_cast<float>(denominator)));
  remainder = numerator - quotient * denominator;
  if (remainder < 0) {
    --quotient;
    remainder += denominator;
  } else if (remainder >= denominator) {
    ++quotient;
    remainder -= denominator;
  }
  return quotient;
}

// The tiles of this block's cluster, in bands of `group` rows of cluster tiles, column by column,
// so that the clusters under way at one time read a nearly square part of A and B.
class Schedule {
 public:
  __device__ Schedule(int m, int n, int group)
      : rows_((m + BM * CM - 1) / (BM * CM)),
        columns_((n + COLUMNS * CN - 1) / (COLUMNS * CN)),
        group_(group),
        rank_(blockIdx.x % kCluster),
        tile_(blockIdx.x / kCluster) {}

  // Moves to the next tile; row() and column() are those of its first element in its product.
  __device__ __forceinline__ bool next() {
    if (tile_ >= batch * rows_ * columns_) return false;
    int in_batch = tile_, in_band, in_column;
    if constexpr (batch > 1) product_ = divide(tile_, rows_ * columns_, in_batch);
    const int first = divide(in_batch, group_ * columns_, in_band) * group_;
    const int height = rows_ - first < group_ ? rows_ - first : group_;
    const int column = divide(in_band, height, in_column);
    row_ = ((first + in_column) * CM + rank_m()) * BM;
    column_ = (column * CN + rank_n()) * COLUMNS;
    skip();
    return true;
  }
  __device__ void skip() { tile_ += gridDim.x / kCluster; }
  __device__ bool is_last() const { return tile_ >= batch * rows_ * columns_; }
  __device__ int row() const { return row_; }
  __device__ int column() const { return column_; }
  // The first of so many rows that are the product's.
  __device__ int first_of(int rows) const { return batch == 1 ? 0 : product_ * rows; }
  __device__ int rank_m() const { return rank_ % CM; }
  __device__ int rank_n() const { return rank_ / CM; }

 private:
  const int rows_, columns_, group_, rank_;
  int tile_, product_ = 0, row_ = 0, column_ = 0;
};

// Storage by 32-bit shared address.
struct Addresses {
  static constexpr unsigned kB = sizeof(Storage::a);
  static constexpr unsigned kStaging = kB + sizeof(Storage::b);
  static constexpr unsigned kFull = kStaging + sizeof(Storage::staging);
  static constexpr unsigned kEmpty = kFull + sizeof(Storage::full);
  static_assert(kEmpty + sizeof(Storage::empty) == sizeof(Storage));

  unsigned base;
  __device__ unsigned a(int stage) const { return base + stage * sizeof(Storage::a[0]); }
  __device__ unsigned b(int stage) const { return base + kB + stage * sizeof(Storage::b[0]); }
  // Where B is else: a consumer's last rows may leave through A before others read the bias.
  __device__ unsigned bias(int stage) const { return b(stage); }
  __device__ unsigned staging(int warp) const {
    return base + kStaging + warp * sizeof(Storage::staging[0]);
  }
  __device__ unsigned full(int stage) const { return base + kFull + stage * 8; }
  __device__ unsigned empty(int stage) const { return base + kEmpty + stage * 8; }
};

// A warp's rows leave in kStores chunks of 16 rows and CHUNK columns: chunk by chunk, 64-row block
// by block.
__device__ __forceinline__ constexpr int chunk_row(int index) { return index / kChunks * 64; }
__device__ __forceinline__ constexpr int chunk_column(int index) {
  const int column = index % kChunks * CHUNK;
  return column + CHUNK <= COLUMNS ? column : COLUMNS - CHUNK;
}

// What the epilogue adds to the sums, and its factors.
struct Addends {
  const TensorMap& map_residual;
  const out_t* bias;
  float alpha, beta;
  int m, n;
};

// Run by one thread: fills the ring with this block's slices of every tile's operands, then with
// its bias, a stage, and its residual, a stage for each chunk of columns.
__device__ __forceinline__ void produce(const TensorMap& map_a, const TensorMap& map_b,
                                        const Addends& addends, Schedule& schedule, Addresses at,
                                        int k, int steps, bool b_once) {
  constexpr unsigned kColumnRanks = (1u << CM) - 1;  // ranks m + CM * n of one n, shifted
  constexpr unsigned kRowRanks = ((1u << kCluster) - 1) / kColumnRanks;  // of one m: 1 + 2^CM + ...
  constexpr int kSliceB = BN / SLICES;
  constexpr int kSlicesOfHalf = SLICES / STACK;
  const int rank_m = schedule.rank_m(), rank_n = schedule.rank_n();
  Ring<STAGES> ring;
  auto take_stage = [&](unsigned bytes) {
    mbarrier_wait(at.empty(ring.stage), ring.parity ^ 1);
    mbarrier_arrive_expect(at.full(ring.stage), bytes);
  };
  const bool reads = reads_operands(addends.alpha);
  release_next_kernel();
  await_previous_kernel();
  while (schedule.next()) {
    const int row_a = schedule.first_of(addends.m) + schedule.row() + rank_n * (BM / CN);
    const int first_b = kMajorB == Major::k ? schedule.first_of(STACK * addends.n) : 0;
    const int first_k = kMajorB == Major::k ? 0 : schedule.first_of(k);
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      take_stage(STAGE_BYTES);
      const unsigned full = at.full(ring.stage);
#pragma unroll
      for (int box = 0; box < kBoxes; ++box) {
        const int x = reads ? step * DEPTH + box * kBoxK : kNowhere;
        tma_load_for<CN>(at.a(ring.stage) + (box * BM + rank_n * (BM / CN)) * kRowBytes, map_a, x,
                         row_a, full, kRowRanks << rank_m, false);
        if constexpr (kMajorB == Major::k) {
          if (kTurns && step % CM != rank_m) continue;
#pragma unroll
          for (int i = 0; i < SLICES; i += kTurns ? 1 : CM) {
            const int slice = kTurns ? i : rank_m + i;
            const int row_b = first_b + schedule.column() + slice / kSlicesOfHalf * addends.n +
                              slice % kSlicesOfHalf * kSliceB;
            tma_load_for<CM>(at.b(ring.stage) + (box * BN + slice * kSliceB) * kRowBytes, map_b, x,
                             row_b, full, kColumnRanks << (rank_n * CM), b_once);
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
          tma_load_for<CM>(at.b(ring.stage) + block * kBlockBytesB + rank_m * kSlice * kRowBytes,
                           map_b, column_b, row_b, full, kColumnRanks << (rank_n * CM), b_once);
        }
      }
      ring.advance();
    }
    if constexpr (kBias) {
      const int columns = min(addends.n - schedule.column(), BN);  // none where a cluster overhangs
      const unsigned bytes = columns > 0 ? columns * sizeof(out_t) : 0;
      take_stage(bytes);
      if (bytes > 0) {
        bulk_load(at.bias(ring.stage), addends.bias + schedule.column(), bytes,
                  at.full(ring.stage));
      }
      ring.advance();
    }
    if constexpr (kResidual) {
#pragma unroll 1
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        take_stage(BM * kRowBytes);
        const int column = schedule.column() + chunk_column(chunk);
        tma_load(at.a(ring.stage), addends.map_residual,
                 reads_residual(addends.beta) ? column : kNowhere,
                 schedule.first_of(addends.m) + schedule.row(), at.full(ring.stage));
        ring.advance();
      }
    }
  }
}

// The first word of accumulator i, of an even one, rounded: two share a word or have one each.
__device__ __forceinline__ constexpr int word_of(int i) { return i * sizeof(out_t) / 4; }

// Rounds two neighbours to words[place] and, where they take two, the next.
template <typename Out>
__device__ __forceinline__ void round_pair(float first, float second, unsigned (&words)[kWords],
                                           int place) {
  if constexpr (sizeof(Out) == 2) {
    words[place] = pack_pair<Out>(first, second);
  } else {
    words[place] = __float_as_uint(first);
    words[place + 1] = __float_as_uint(second);
  }
}

__device__ __forceinline__ void round_chunk(const float (&d)[kBlocks][BN / 2], int index,
                                            unsigned (&words)[kWords]) {
  const float* first = &d[index / kChunks][chunk_column(index) / 2];
#pragma unroll
  for (int i = 0; i < CHUNK / 2; i += 2) {
    round_pair<out_t>(first[i], first[i + 1], words, word_of(i));
  }
}

// Finishes a piece of the sums of a waiting tile; `words`, rounded, are a ring of the last CHUNK
// columns.
__device__ __forceinline__ void finish_piece(const float (&sums)[BN / 2], int piece, float alpha,
                                             unsigned (&words)[kWords]) {
#pragma unroll
  for (int pair = 0; pair < kPiece / 4; ++pair) {
    const int i = piece * kPiece / 2 + 2 * pair;
    if (i >= COLUMNS / 2) break;
    float x[2 * STACK];
#pragma unroll
    for (int j = 0; j < 2 * STACK; ++j) x[j] = sums[i + j % 2 + j / 2 * (COLUMNS / 2)];
    wgmma_pin(x);  // else the compiler may activate all sums in front of the k steps
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      if constexpr (kGated) {
        x[j] = gated(alpha, x[j], x[j + 2]);
      } else {
        x[j] = activate(x[j]);
      }
    }
    round_pair<out_t>(x[0], x[1], words, word_of(i) % kWords);
  }
}

// The chunk that finishing a piece completes, if any: every one ends with a piece.
__device__ __forceinline__ constexpr int completed_chunk(int piece) {
  const int end = (piece + 1) * kPiece;
  return end % CHUNK == 0 || end >= COLUMNS ? piece * kPiece / CHUNK : -1;
}

// The result, and the maps of its tensors where TMA can address them.
struct Target {
  Output<int> output;
  const TensorMap& map_d;
  const TensorMap& map_k;
  const TensorMap& map_v;
  int m;
};

// Stores a staged chunk without TMA: the warp goes from row to row. `row` is one of the product
// whose first row of D is `first`.
__device__ __forceinline__ void store_rows(const Target& target, unsigned slot, int column, int row,
                                           int first) {
  const int lane = threadIdx.x % 32;
#pragma unroll 2
  for (int line = 0; line < kWarpRows; ++line) {
    if (row + line >= target.m) break;
    const long long row_d = first + row + line;
    out_t* const to = target.output.at(row_d, column);
#pragma unroll
    for (int i = lane; i < CHUNK; i += 32) {
      const int byte = i * sizeof(out_t);
      const unsigned from = slot + line * kRowBytes + ((byte / 16) ^ (line & 7)) * 16 + byte % 16;
      if (column + i < target.output.n) {
        *(kSplit ? target.output.at(row_d, column + i) : to + i) = load_shared<out_t>(from);
      }
    }
  }
}

// Starts the store of a staged chunk, all of whose columns are one tensor's. Run by one thread.
__device__ __forceinline__ void store_box(const Target& target, unsigned slot, int column,
                                          int row) {
  if constexpr (kSplit) {
    const Part<int> part = part_of(column, target.output.n, target.output.ldd);
    const TensorMap& map = part.tensor == 0   ? target.map_d
                           : part.tensor == 1 ? target.map_k
                                              : target.map_v;
    tma_store(map, slot, part.column, row);
  } else {
    tma_store(target.map_d, slot, column, row);
  }
}

// Writes 16 rows of a chunk to `slot` in the swizzle of its row length, and starts their store. TMA
// leaves out what lies beyond all rows: those beyond the product's own are sent there.
__device__ __forceinline__ void store_chunk(const unsigned (&words)[kWords], const Target& target,
                                            unsigned slot, int column, int row, int first) {
  const int lane = threadIdx.x % 32, line = lane % kWarpRows, half = lane / kWarpRows;
  if constexpr (sizeof(out_t) == 2) {
#pragma unroll
    for (int j = 0; j < kWords / 4; ++j) {
      stmatrix_x4(slot + line * kRowBytes + ((2 * j + half) ^ (line & 7)) * 16, words[4 * j],
                  words[4 * j + 1], words[4 * j + 2], words[4 * j + 3]);
    }
  } else {
#pragma unroll
    for (int j = 0; j < kWords / 2; ++j) {
      store_shared_pair(swizzled_pair(slot, j), words[2 * j], words[2 * j + 1]);
    }
  }
  if constexpr (ALIGNED_D) {
    row = batch == 1 || row < target.m ? first + row : batch * target.m;
    tma_store_fence();
    __syncwarp();
    if (lane == 0) store_box(target, slot, column, row);
  } else {
    __syncwarp();
    store_rows(target, slot, column, row, first);
  }
}

// What a consumer multiplies of a stage: kProducts times 32 bytes of k.
constexpr int kProducts = BK / 16;
class Operands {
 public:
  __device__ __forceinline__ Operands(Addresses at, int stage, int first_row)
      : a_(wgmma_descriptor(at.a(stage) + first_row * kRowBytes)),
        b_(wgmma_descriptor<kMajorB>(at.b(stage), kBlockBytesB)) {}

  // Issues product `k` of block `i` of 64 rows, to be added to d or put in its place.
  __device__ __forceinline__ void issue(float (&d)[BN / 2], int i, int k, bool add) const {
    const int box = k / 4, inside = k % 4 * 32;
    const int offset_b = kMajorB == Major::k ? box * BN * kRowBytes + inside : k * 16 * kRowBytes;
    wgmma_issue<dtype_t, BN, Major::k, kMajorB>(
        d, a_ + ((box * BM + i * 64) * kRowBytes + inside) / 16, b_ + offset_b / 16, add);
  }

 private:
  unsigned long long a_, b_;
};

// Run by one consumer warpgroup.
__device__ __forceinline__ void consume(const Target& target, const Addends& addends,
                                        Schedule& schedule, Addresses at, int steps, int consumer) {
  const int lane = threadIdx.x % 32;
  const int warp = __shfl_sync(~0u, threadIdx.x / 32 % 4, 0);
  const int first_row = consumer % TEAM * kBlocks * 64;
  const unsigned staging = at.staging(consumer * 4 + warp);
  Ring<STAGES> ring;
  int buffer = 0;
  // The previous tile, rounded, its next chunk in front. LATE its sums, and in waiting[0] what
  // finish_piece made of the last of them. `stored` of its kLeaving parts are done.
  unsigned waiting[kStores][kWords];
  float sums[BN / 2];
  int stored = kLeaving, waiting_row = 0, waiting_column = 0, waiting_first = 0;

  auto store_staged = [&](const unsigned(&words)[kWords], int column, int row, int first) {
    if (lane == 0) tma_store_wait_read<kStagingBuffers - 1>();
    __syncwarp();
    store_chunk(words, target, staging + buffer * sizeof(Storage::staging[0][0]), column, row,
                first);
    buffer ^= 1;
  };
  auto store_waiting = [&] {
    if constexpr (LATE) {
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) {  // an index would put the array into memory
        if (piece != stored) continue;
        finish_piece(sums, piece, addends.alpha, waiting[0]);
        const int chunk = completed_chunk(piece);
        if (chunk < 0) continue;
        unsigned words[kWords];
#pragma unroll
        for (int j = 0; j < kWords; ++j) {
          words[j] = waiting[0][(word_of(chunk_column(chunk) / 2) + j) % kWords];
        }
        store_staged(words, waiting_column + chunk_column(chunk), waiting_row, waiting_first);
      }
    } else {
      store_staged(waiting[0], waiting_column + chunk_column(stored),
                   waiting_row + chunk_row(stored), waiting_first);
#pragma unroll
      for (int i = 0; i + 1 < kStores; ++i)  // an index would put the array into memory
#pragma unroll
        for (int j = 0; j < kWords; ++j) waiting[i][j] = waiting[i + 1][j];
    }
    ++stored;
  };
  auto release = [&](int stage) {
    if constexpr (kCluster == 1) {
      if (lane == 0) mbarrier_arrive(at.empty(stage));
    } else if (lane < kCluster &&
               (lane % CM == schedule.rank_m() || lane / CM == schedule.rank_n())) {
      mbarrier_arrive_at(at.empty(stage), lane);
    }
  };

  auto await_addend = [&] { mbarrier_wait(at.full(ring.stage), ring.parity); };
  auto release_addend = [&] {  // ordinary loads have read it
    tma_store_fence();
    __syncwarp();
    release(ring.stage);
    ring.advance();
  };
  auto scale_and_bias = [&](float(&d)[kBlocks][BN / 2]) {
    if constexpr (kScaling && !kGated) scale_all(d, addends.alpha);  // gating scales both sums
    if constexpr (kBias) {
      await_addend();
      add_columns<out_t>(d, at.bias(ring.stage));
      release_addend();
    }
  };
  auto finish = [&](float(&d)[kBlocks][BN / 2]) {
    if constexpr (kGated) {
      gate_all(d, addends.alpha);
    } else if constexpr (kActivation) {
      activate_all(d);
    }
    if constexpr (kResidual) {
#pragma unroll
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        await_addend();
        const unsigned rows = at.a(ring.stage) + (first_row + warp * kWarpRows) * kRowBytes;
#pragma unroll
        for (int i = 0; i < kBlocks; ++i) {  // what the chunk before has is not added again
          add_rows<out_t>(d[i], rows + i * 64 * kRowBytes, chunk_column(chunk), chunk * CHUNK,
                          residual_factor(addends.beta));
        }
        release_addend();
      }
    }
  };

  auto await_stage = [&] {
    mbarrier_wait(at.full(ring.stage), ring.parity);
    return Operands(at, ring.stage, first_row);
  };
  // PINGPONG, lets the other consumer begin its tile. All stages of this one have landed, those of
  // its addends too: else the other might wait for a stage whose barrier is a phase behind, which
  // looks as if it were there.
  auto hand_over = [&] {
    if (!PINGPONG || schedule.is_last()) return;
    Ring<STAGES> landed = ring;
#pragma unroll
    for (int i = 0; i < kAddendStages; ++i) {
      mbarrier_wait(at.full(landed.stage), landed.parity);
      landed.advance();
    }
    named_barrier_arrive(2 + 1 - consumer, 256);
  };
  auto leave_to_other = [&] {  // the tile that is its
    schedule.skip();
    ring.skip(steps + kAddendStages);
  };

  auto multiply = [&](float(&d)[kBlocks][BN / 2]) {
    int previous = -1;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      const Operands operands = await_stage();
#pragma unroll
      for (int i = 0; i < kBlocks; ++i) wgmma_pin(d[i]);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < kProducts; ++k) {
#pragma unroll
        for (int i = 0; i < kBlocks; ++i) operands.issue(d[i], i, k, (step | k) != 0);
      }
      wgmma_commit();
      if constexpr (OVERLAP) {
        if (stored < kLeaving) store_waiting();
      }
      wgmma_wait<1>();
      if (previous >= 0) release(previous);
      previous = ring.stage;
      ring.advance();
    }
    hand_over();
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) wgmma_pin(d[i]);
    release(previous);
  };
  auto multiply_promoted = [&](float(&d)[kBlocks][BN / 2]) {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
#pragma unroll
      for (float& x : d[i]) x = 0;
    }
    int step = 0;
#pragma unroll 1
    do {  // a loop that might run no step would cost registers: LATE spills
      const Operands operands = await_stage();
#pragma unroll
      for (int i = 0; i < kBlocks; ++i) {
        float part[BN / 2];
        wgmma_pin(part);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < kProducts; ++k) operands.issue(part, i, k, k != 0);
        wgmma_commit();
        if constexpr (OVERLAP) {
          if (i == 0 && stored < kLeaving) store_waiting();
        }
        wgmma_wait<0>();
        wgmma_pin(part);
        if (i == kBlocks - 1) release(ring.stage);
#pragma unroll
        for (int j = 0; j < BN / 2; ++j) d[i][j] += part[j];
      }
      ring.advance();
    } while (++step < steps);
  };

  bool first_of_block = consumer == 0;
  if (PINGPONG && consumer == 1) leave_to_other();
  while (schedule.next()) {
    if constexpr (PINGPONG) {
      if (!first_of_block) named_barrier_sync(2 + consumer, 256);
      first_of_block = false;
    }
    float d[kBlocks][BN / 2];
    if constexpr (PROMOTED) {
      multiply_promoted(d);
    } else {
      multiply(d);
    }

    const int row = schedule.row() + first_row + warp * kWarpRows, column = schedule.column();
    const int first = schedule.first_of(target.m);
    if constexpr (OVERLAP) {
#pragma unroll 1
      while (stored < kLeaving) store_waiting();
    }
    scale_and_bias(d);
    if (!LATE || schedule.is_last()) finish(d);
    if constexpr (kFunction) user_epilogue_all<COLUMNS / 2>(d, row, column);
    if (!PINGPONG && schedule.is_last()) {
      if constexpr (kThroughB) {
        named_barrier_sync(2, 128 * CONSUMERS);
      } else {
        named_barrier_sync(2 + consumer, 128);  // the warpgroup has read its rows of A
      }
#pragma unroll
      for (int index = 0; index < kStores; ++index) {
        unsigned words[kWords];
        round_chunk(d, index, words);
        const int line = index % kChunks * BM + first_row + chunk_row(index) + warp * kWarpRows;
        store_chunk(words, target, at.a(0) + line * kRowBytes, column + chunk_column(index),
                    row + chunk_row(index), first);
      }
      if constexpr (LATE) break;  // else the sums before would be kept beside these
    } else if constexpr (OVERLAP) {
      if constexpr (LATE) {
#pragma unroll
        for (int i = 0; i < BN / 2; ++i) sums[i] = d[0][i];
      } else {
#pragma unroll
        for (int index = 0; index < kStores; ++index) round_chunk(d, index, waiting[index]);
      }
      stored = 0;
      waiting_row = row;
      waiting_column = column;
      waiting_first = first;
    } else {
#pragma unroll
      for (int index = 0; index < kStores; ++index) {
        unsigned words[kWords];
        round_chunk(d, index, words);
        store_staged(words, column + chunk_column(index), row + chunk_row(index), first);
      }
    }
    if constexpr (PINGPONG) leave_to_other();
  }
  if (lane == 0) tma_store_wait_read<0>();
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
    for (int stage = 0; stage < STAGES; ++stage) {
      mbarrier_init(at.full(stage), 1);
      mbarrier_init(at.empty(stage), (CM + CN - 1) * TEAM * 4);  // one per warp that shares
    }
    mbarrier_init_fence();
    if constexpr (ALIGNED_D) {
      tma_prefetch(map_d);
      if constexpr (kSplit) {
        tma_prefetch(map_d_k);
        tma_prefetch(map_d_v);
      }
    }
  }
  Schedule schedule(m, n, group);
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
        produce(map_a, map_b, addends, schedule, at, k, steps, b_once != 0);
      }
      __syncwarp();
    } else {
      if constexpr (PRODUCER_REGISTERS != 0) registers_release<PRODUCER_REGISTERS>();
    }
  } else {
    if constexpr (kCluster == 1) named_barrier_sync(1, 32 + 128 * CONSUMERS);
    if constexpr (CONSUMER_REGISTERS != 0) registers_claim<CONSUMER_REGISTERS>();
    const Target target{{d, d_k, d_v, n, ldd}, map_d, map_d_k, map_d_v, m};
    consume(target, addends, schedule, at, steps, role - 1);
  }
  if constexpr (kCluster > 1) {  // a block that left could still be written to or arrived at
    cluster_arrive_relaxed();
    cluster_wait();
  }
}
