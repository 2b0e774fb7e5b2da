// D[m, n] = A[m, k] * B[n, k]^T, row-major, for few rows of A or of B (Hopper). Operands have 16 or
// 8 bits or are fp32 taken as tf32, and sums are accumulated in fp32. In this file `a` is the
// operand with few rows, m of them, and `b` the other. With TRANSPOSED these are the problem's b
// and a, and D is [n, m]. With b_layout=kn, which is never TRANSPOSED, b is [k, n]. Rows of b and D
// begin ldb and ldd elements apart.
//
// The product is computed transposed: rows of b, of which there are many, take the 64 rows of
// wgmma, and a is the other operand, of BM rows. Nearly all of the time goes into reading b, so
// what counts is how much of it is in flight: one warp fills a deep ring by TMA, BN / 64 warpgroups
// multiply from it, and several blocks share a multiprocessor.
//
// SPLIT   The blocks of a cluster take a slice of k each. Every block owns a part of the tile. The
//         others send their sums of that part straight into its shared memory, and it adds them in
//         the order of the ranks. When a block exits, nobody writes to it any more.
// SLICES  Where that leaves multiprocessors idle, several clusters or single blocks take a part of
//         k each and store their sums to memory. A launch after this one, matmul_finish, adds them
//         in the order of the slices.
// CM      The blocks of a cluster take neighbouring tiles along the few rows. They load the rows of
//         b that they share in parts, and multicast them.
// PROMOTED  The tensor cores keep about 14 bits of a sum of fp8 products. So they sum 128 of k at a
//         time, and these sums are added in fp32.
// scaling With scales of blocks, a second warp copies a stage's scales, and the sums of each 128 of
//         k are multiplied by them on their way.
// gate    A stage holds BN rows of b's gates and the same rows of its other half, and a consumer
//         has 64 of either. A unit of its sums is then two float4 that make one unit of elements.
//
// The products of a batch follow each other as more rows of all tensors, and take a layer of the
// grid each.
//
// TMA cannot address rows that do not start at multiples of 16 bytes. A launch before this one,
// matmul_pad, copies operands with such rows.

#include <kernwright/config.cuh>
#include <kernwright/math/types.cuh>
#include <kernwright/math/vector.cuh>
#include <kernwright/matmul/block_scales.cuh>
#include <kernwright/matmul/few_rows.cuh>
#include <kernwright/matmul/pad_rows.cuh>
#include <kernwright/ptx/cluster.cuh>
#include <kernwright/ptx/mbarrier.cuh>
#include <kernwright/ptx/programmatic.cuh>
#include <kernwright/ptx/stmatrix.cuh>
#include <kernwright/ptx/tma.cuh>
#include <kernwright/ptx/warp_roles.cuh>
#include <kernwright/tile/pipeline.cuh>
#include <kernwright/tile/swizzle.cuh>
#include <kernwright/tile/wgmma_tile.cuh>

namespace {

using namespace kernwright;
using namespace kernwright::config;

constexpr int kRowBytes = kSwizzleBytes;  // of a TMA box
constexpr int kBoxK = kRowBytes / sizeof(dtype_t);
constexpr int kBoxes = DEPTH / kBoxK;  // boxes along k of a stage
constexpr int kProducts = BK / 16;     // steps of 32 bytes of k in a stage
// b as [k, n] is loaded in boxes of 64 columns and the whole depth of a stage.
constexpr Major kMajorB = b_layout == b_layout_kn ? Major::mn : Major::k;
constexpr int kBlockBytesB = DEPTH * kRowBytes;        // of such a box
constexpr int kRowsB = BN * STACK;                     // of a stage
constexpr int kFragments = BM / 8;                     // units per consumer thread
constexpr int kUnits = kFragments * CONSUMER_THREADS;  // of a tile: 2 x 2 elements each
constexpr int kOwned = kUnits / SPLIT;                 // of these, summed by one block
constexpr bool kScaled = scaling == scaling_block;
constexpr int kParts = SPLIT * SLICES;  // of k
constexpr int kFinishThreads = 128;     // each adds up a unit
static_assert(kUnits % SPLIT == 0 && kOwned * SPLIT * 16 == BM * BN * 4);
static_assert(kUnits % kFinishThreads == 0);
static_assert(BN % 64 == 0 && DEPTH % kBoxK == 0 && BM % 8 == 0);
static_assert(kMajorB == Major::k || !TRANSPOSED);
static_assert(CM == 1 || SPLIT == 1, "the ranks of a cluster are tiles or slices of k");
// Tiles of many rows are staged in the ring before they are stored. A consumer uses the rows of b
// that it alone reads; its 64 columns of d are 128 bytes of each row.
constexpr int kRowsOfBox = 64;
constexpr bool kStaged = BM >= 64 && kParts == 1 && !TRANSPOSED && sizeof(out_t) == 2 &&
                         STAGES * kBoxes * kRowsOfBox >= BM;

using TilePipeline = Pipeline<STAGES, CM>;
using OperandA = WgmmaOperand<Major::k, BM, DEPTH>;
using OperandB = WgmmaOperand<kMajorB, kRowsB, DEPTH>;

// The sums of a consumer thread, and those of a unit.
using Sums = float[STACK][BM / 2];
struct Unit {
  float4 sums[STACK];
};

// 32-bit addresses in shared memory. `base` is a multiple of 1024, which the swizzle needs.
struct Addresses {
  static constexpr unsigned kA = STAGES * kRowsB * BK * 2;
  static constexpr unsigned kPartial = SUMS_IN_RING ? 0 : STAGES * STAGE_BYTES;
  static constexpr unsigned kBarriers = STAGES * STAGE_BYTES + (SUMS_IN_RING ? 0 : PARTIAL_BYTES);
  static constexpr unsigned kReceived = kBarriers + TilePipeline::kBytes;
  static constexpr unsigned kScales = kReceived + 16;
  static_assert(kScales + STAGES * SCALE_BYTES + 1024 == SMEM_BYTES);
  static_assert(!SUMS_IN_RING || PARTIAL_BYTES <= STAGES * STAGE_BYTES);

  unsigned base;
  __device__ unsigned b(int stage) const { return base + stage * (kRowsB * BK * 2); }
  __device__ unsigned a(int stage) const { return base + kA + stage * (BM * BK * 2); }
  // Sums of this block's part of the tile, rows of kOwned for each rank.
  __device__ unsigned partial(int rank, int half, int unit) const {
    return base + kPartial + ((rank * STACK + half) * kOwned + unit) * 16;
  }
  __device__ unsigned barriers() const { return base + kBarriers; }
  // Of a stage's 128 of k number `box`.
  __device__ StageScales<BM> scales(int stage, int box) const {
    return {base + kScales + stage * SCALE_BYTES + box * StageScales<BM>::kBytes};
  }
  __device__ unsigned received() const {
    return base + kReceived;
  }  // barrier: all partial sums have arrived
};

// The first row of this block's product in a tensor with `rows` rows for each product.
template <typename Index>
__device__ __forceinline__ Index first_of_batch(int rows) {
  return batch == 1 ? 0 : static_cast<Index>(blockIdx.z) * rows;
}

// Prefetches the first stages of b into the L2 while the kernel ahead may still run; that kernel
// seldom writes b. Run by all consumer threads, which have nothing else to do.
__device__ __forceinline__ void prefetch_stages(const dtype_t* b, int k, int ldb, int row_b,
                                                int rows_b, int first, int last) {
  if constexpr (kMajorB == Major::k) {
    if (ldb * sizeof(dtype_t) % 16 != 0) return;  // a copy is read instead
    b += first_of_batch<long long>(STACK * rows_b) * ldb;
    constexpr int kLine = 128 / sizeof(dtype_t);
    constexpr int kLines = DEPTH / kLine;
    const int lines = min(last - first, STAGES) * kLines;
#pragma unroll 1
    for (int i = threadIdx.x; i < kRowsB * lines; i += CONSUMER_THREADS) {
      const int place = i / lines, half = place / BN, row = row_b + place % BN;
      const int column = first * DEPTH + i % lines * kLine;
      if (row < rows_b && column < k) {
        prefetch_line(b + (static_cast<long long>(half) * rows_b + row) * ldb + column);
      }
    }
  }
}

// The producer, one thread. `rows_b` are the rows of b, or of its gates alone.
__device__ __forceinline__ void produce(const TensorMap& map_a, const TensorMap& map_b,
                                        TilePipeline& pipeline, Addresses at, int row_a, int row_b,
                                        int rows_a, int rows_b, int k, int first, int last,
                                        bool b_once, bool reads) {
  constexpr unsigned kAll = (1u << CM) - 1;                           // ranks of the cluster
  constexpr int kPartB = kMajorB == Major::k ? BN / CM : DEPTH / CM;  // rows, or of k
  const int part_b = CM == 1 ? 0 : blockIdx.y % CM * kPartB;
  row_a += first_of_batch<int>(rows_a);
  if constexpr (kMajorB == Major::k) row_b += first_of_batch<int>(STACK * rows_b) + part_b;
  const int first_k = kMajorB == Major::k ? 0 : first_of_batch<int>(k) + part_b;
  release_next_kernel();
  await_previous_kernel();
#pragma unroll 1
  for (int step = first; step < last; ++step) {
    pipeline.producer_acquire(STAGE_BYTES);
    const int stage = pipeline.stage();
    const unsigned full = pipeline.full();
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {
      const int x = reads ? step * DEPTH + box * kBoxK : kNowhere;
      if constexpr (kMajorB == Major::k) {
#pragma unroll
        for (int half = 0; half < STACK; ++half) {
          tma_load_for<CM>(at.b(stage) + (box * kRowsB + half * BN + part_b) * kRowBytes, map_b, x,
                           row_b + half * rows_b, full, kAll, b_once);
        }
      }
      tma_load(at.a(stage) + box * BM * kRowBytes, map_a, x, row_a, full);
    }
    if constexpr (kMajorB == Major::mn) {
#pragma unroll
      for (int block = 0; block < kRowsB / 64; ++block) {
        const int half = block * 64 / BN;
        tma_load_for<CM>(at.b(stage) + block * kBlockBytesB + part_b * kRowBytes, map_b,
                         row_b + block * 64 + half * (rows_b - BN),
                         reads ? first_k + step * DEPTH : kNowhere, full, kAll, b_once);
      }
    }
    pipeline.advance();
  }
  if constexpr (CM > 1) pipeline.producer_drain();
}

// With scales of blocks, one warp: copies those of each stage.
__device__ __forceinline__ void produce_scales(const ScaleTensors& scales, TilePipeline& pipeline,
                                               Addresses at, int row_a, int row_b, int first,
                                               int last) {
  const ScaleTensors from = scales_of(scales, batch == 1 ? 0 : blockIdx.z);
  await_previous_kernel();
#pragma unroll 1
  for (int step = first; step < last; ++step) {
    pipeline.producer_wait();
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {
      at.scales(pipeline.stage(), box).load(from, row_a, row_b, step * kBoxes + box);
    }
    arrive_with_scales(pipeline.full());
    pipeline.advance();
  }
}

// Issues `count` steps of 32 bytes of k of a stage, from step `first` on. They are added to d or,
// unless `add`, replace it.
__device__ __forceinline__ void start_products(Sums& d, const OperandB& b, const OperandA& a,
                                               int first, int count, bool add) {
#pragma unroll
  for (int half = 0; half < STACK; ++half) wgmma_pin(d[half]);
  wgmma_fence();
  multiply<dtype_t>(d, b, BN, a, first, count, add);
  wgmma_commit();
}

__device__ __forceinline__ void finish_products(Sums& d) {
  wgmma_wait<0>();
#pragma unroll
  for (int half = 0; half < STACK; ++half) wgmma_pin(d[half]);
}

// A consumer, one warpgroup: multiplies its 64 rows of b, of either half. With AHEAD a stage's
// products still run while the next stage's are issued; the stage is released after that.
__device__ __forceinline__ void consume(Sums& sums, TilePipeline& pipeline, Addresses at, int first,
                                        int last) {
  const int consumer = __shfl_sync(~0u, threadIdx.x / 128, 0);
  int previous = 0;
  if constexpr (PROMOTED) {
#pragma unroll
    for (int half = 0; half < STACK; ++half) {
#pragma unroll
      for (float& sum : sums[half]) sum = 0;
    }
  }
#pragma unroll 1
  for (int step = first; step < last; ++step) {
    pipeline.consumer_wait();
    const OperandB b(at.b(pipeline.stage()), consumer * 64);
    const OperandA a(at.a(pipeline.stage()));
    if constexpr (PROMOTED) {
#pragma unroll
      for (int box = 0; box < kBoxes; ++box) {  // 128 of k each
        Sums part;
        start_products(part, b, a, box * kStepsOfBox, kStepsOfBox, false);
        finish_products(part);
        if constexpr (kScaled) {
          ColumnFactors<BM>(at.scales(pipeline.stage(), box)).add(sums[0], part[0]);
        } else {
#pragma unroll
          for (int half = 0; half < STACK; ++half) {
#pragma unroll
            for (int i = 0; i < BM / 2; ++i) sums[half][i] += part[half][i];
          }
        }
      }
      if constexpr (kScaled) __syncwarp();  // all lanes have read the scales
      pipeline.consumer_release(pipeline.stage());
    } else {
      start_products(sums, b, a, 0, kProducts, step != first);
      if constexpr (AHEAD) {
        wgmma_wait<1>();
        if (step != first) pipeline.consumer_release(previous);
        previous = pipeline.stage();
      } else {
        finish_products(sums);
        pipeline.consumer_release(pipeline.stage());
      }
    }
    pipeline.advance();
  }
  if constexpr (AHEAD) {
    finish_products(sums);
    pipeline.consumer_release(previous);
  }
}

__device__ __forceinline__ Unit unit_of(const Sums& sums, int index) {
  Unit unit;
#pragma unroll
  for (int half = 0; half < STACK; ++half) {
    const float* const x = &sums[half][4 * index];
    unit.sums[half] = {x[0], x[1], x[2], x[3]};
  }
  return unit;
}

// A tile of D in this block's product: its first rows of a and of b, and its number.
struct Tile {
  FewRows d;
  int row_a, row_b;
  long long number;  // among the tiles of all products

  __device__ Tile(out_t* d, int m, int n, int ldd, const out_t* column_bias, const out_t* addend,
                  float alpha, float beta, int tile_a, int tile_b, int tiles_a, int tiles_b,
                  out_t* d_k, out_t* d_v)
      : d(d + first_of_batch<long long>(TRANSPOSED ? n : m) * ldd, alpha, column_bias, beta,
          kResidual ? addend + first_of_batch<long long>(m) * n : addend, m, n, ldd, d_k, d_v),
        row_a(tile_a * BM),
        row_b(tile_b * BN),
        number(first_of_batch<long long>(tiles_a) * tiles_b +
               static_cast<long long>(tile_a) * tiles_b + tile_b) {}
};

// The tile and the slice of k of this block. Blocks with neighbouring numbers run on one group of
// multiprocessors, which asks the L2 once for lines that several of them read at about the same
// time. So with `a_first` neighbours are tiles that share rows of b. Clusters go to the groups one
// by one, and those of one slice to the same group.
struct Place {
  int tile_a, tile_b, tiles_a, tiles_b, slice = 0;

  __device__ explicit Place(bool a_first) {
    if constexpr (SPLIT * CM > 1) {
      slice = blockIdx.x / SPLIT % SLICES;
      tile_b = blockIdx.x / kParts, tiles_b = gridDim.x / kParts;
      tile_a = blockIdx.y, tiles_a = gridDim.y;
    } else {
      const int x = blockIdx.x, tiles_x = gridDim.x, tiles_y = gridDim.y / SLICES;
      if constexpr (SLICES > 1) slice = blockIdx.y / tiles_y;
      const int y = blockIdx.y - slice * tiles_y;
      tile_a = a_first ? x : y, tiles_a = a_first ? tiles_x : tiles_y;
      tile_b = a_first ? y : x, tiles_b = a_first ? tiles_y : tiles_x;
    }
  }
};

// Finishes and stores unit `index` of consumer thread `thread`: two rows of a by two rows of b.
__device__ __forceinline__ void store(const Tile& tile, int index, unsigned thread,
                                      const Unit& unit) {
  const int row_a = tile.row_a + index * 8 + static_cast<int>(thread % 4) * 2;
  const int row_b = tile.row_b + static_cast<int>(thread / 32 * 16 + thread % 32 / 4);
  const float4 &x = unit.sums[0], &other = unit.sums[STACK - 1];
  tile.d.store(row_a, row_b, x.x, other.x);
  tile.d.store(row_a + 1, row_b, x.y, other.y);
  tile.d.store(row_a, row_b + 8, x.z, other.z);
  tile.d.store(row_a + 1, row_b + 8, x.w, other.w);
}

// The address at which a consumer stages row `row` of its tile: 128 bytes in the 128-byte swizzle.
__device__ __forceinline__ unsigned staged_row(Addresses at, int consumer, int row) {
  const int box = row / kRowsOfBox;
  const unsigned boxes =
      kMajorB == Major::k
          ? at.b(box / kBoxes) + (box % kBoxes * kRowsB + consumer * kRowsOfBox) * kRowBytes
          : at.b(box / kBoxes) + consumer * kBlockBytesB + box % kBoxes * kRowsOfBox * kRowBytes;
  return boxes + row % kRowsOfBox * kRowBytes;
}

// Finishes the tile and stores it in whole rows; each consumer has 64 columns of d.
template <typename Out>
__device__ __forceinline__ void store_staged(const Tile& tile, const Sums& sums, Addresses at) {
  constexpr int kGroup = 16 / sizeof(Out);  // neighbours in d that one store writes
  const int consumer = __shfl_sync(~0u, threadIdx.x / 128, 0);
  const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
  unsigned words[kFragments][2];  // fragments of 8 rows of a by 8 rows of b
#pragma unroll
  for (int i = 0; i < kFragments; ++i) {
    const int row_a = tile.row_a + i * 8 + lane % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row_b = tile.row_b + consumer * 64 + warp * 16 + half * 8 + lane / 4;
      const float *x = &sums[0][4 * i + 2 * half], *other = &sums[STACK - 1][4 * i + 2 * half];
      words[i][half] = pack_pair<Out>(tile.d.finished(row_a, row_b, x[0], other[0]),
                                      tile.d.finished(row_a + 1, row_b, x[1], other[1]));
    }
  }
  named_barrier_sync(2 + consumer, 128);  // all warps of the consumer have read its rows of b
#pragma unroll
  for (int i = 0; i < kFragments; i += 2) {
    const int first = i + 1 < kFragments ? i : i - 1;  // the last one may be stored twice
    const int row = first * 8 + lane / 16 * 8 + lane % 8, group = warp * 2 + lane / 8 % 2;
    stmatrix_x4_transposed(staged_row(at, consumer, row) + swizzled_group(row, group),
                           words[first][0], words[first][1], words[first + 1][0],
                           words[first + 1][1]);
  }
  named_barrier_sync(2 + consumer, 128);
  const int column = tile.row_b + consumer * 64;
  if (tile.d.in_groups_of(kGroup)) {
#pragma unroll 4
    for (int i = thread; i < BM * 64 / kGroup; i += 128) {
      const int row = i / (64 / kGroup), group = i % (64 / kGroup);
      if (!tile.d.has(tile.row_a + row, column + group * kGroup)) continue;
      *reinterpret_cast<float4*>(tile.d.at(tile.row_a + row, column + group * kGroup)) =
          load_quad(staged_row(at, consumer, row) + swizzled_group(row, group));
    }
  } else {
#pragma unroll 4
    for (int i = thread; i < BM * 64; i += 128) {
      const int row = i / 64, byte = i % 64 * sizeof(Out);
      if (!tile.d.has(tile.row_a + row, column + i % 64)) continue;
      *tile.d.at(tile.row_a + row, column + i % 64) =
          load_shared<Out>(staged_row(at, consumer, row) + swizzled_byte(row, byte));
    }
  }
}

__device__ __forceinline__ void add(float4& sum, const float4& x) {
  sum = {sum.x + x.x, sum.y + x.y, sum.z + x.z, sum.w + x.w};
}

// Sends the sums to the blocks that own them, adds up those that this block owns, and calls
// `deliver(index, thread, unit)` with each.
template <typename Deliver>
__device__ __forceinline__ void reduce(const Sums& sums, Addresses at, int rank,
                                       const Deliver& deliver) {
  const unsigned thread = threadIdx.x;
#pragma unroll
  for (int i = 0; i < kFragments; ++i) {
    const unsigned unit = i * CONSUMER_THREADS + thread, owner = unit / kOwned;
    const Unit mine = unit_of(sums, i);
#pragma unroll
    for (int half = 0; half < STACK; ++half) {
      cluster_store(cluster_address(at.partial(rank, half, unit % kOwned), owner), mine.sums[half],
                    cluster_address(at.received(), owner));
    }
  }
  mbarrier_wait(at.received(), 0);
#pragma unroll 1
  for (unsigned i = thread; i < kOwned; i += CONSUMER_THREADS) {
    Unit whole;
#pragma unroll
    for (int half = 0; half < STACK; ++half) {
      float4& sum = whole.sums[half];
      sum = load_quad(at.partial(0, half, i));
#pragma unroll
      for (int from = 1; from < SPLIT; ++from) {
        add(sum, load_quad(at.partial(from, half, i)));
      }
    }
    const unsigned unit = rank * kOwned + i;
    deliver(unit / CONSUMER_THREADS, unit % CONSUMER_THREADS, whole);
  }
}

// The place in the workspace for a slice's sums of a unit.
__device__ __forceinline__ float4& slice_sums(float4* sums, const Tile& tile, int slice, int half,
                                              unsigned unit) {
  return sums[((tile.number * SLICES + slice) * STACK + half) * kUnits + unit];
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

extern "C" __global__ void __launch_bounds__(THREADS)
    matmul_skinny(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
                  out_t* __restrict__ d, int m, int n, int k, int ldb, int ldd,
                  const out_t* __restrict__ column_bias, const out_t* __restrict__ addend,
                  float alpha, float beta, const dtype_t* b, float4* slices,
                  out_t* __restrict__ d_k, out_t* __restrict__ d_v, int b_once, int a_first,
                  const float* __restrict__ scale_a, const float* __restrict__ scale_b, int lds) {
  extern __shared__ unsigned char memory[];
  const Addresses at{(static_cast<unsigned>(__cvta_generic_to_shared(memory)) + 1023) & ~1023u};
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
  const bool producer = warp == CONSUMER_THREADS / 32;
  TilePipeline pipeline(at.barriers());
  const Place place(a_first != 0);
  const int rank = blockIdx.x % SPLIT, part = place.slice * SPLIT + rank;
  const Tile tile(d, m, n, ldd, column_bias, addend, alpha, beta, place.tile_a, place.tile_b,
                  place.tiles_a, place.tiles_b, d_k, d_v);
  const int steps = (k + DEPTH - 1) / DEPTH;
  const int first = part * steps / kParts, last = (part + 1) * steps / kParts;

  if (producer) {
    if (elect_one()) {
      tma_prefetch(map_b);
      tma_prefetch(map_a);
      pipeline.init(CONSUMER_THREADS / 32, kScaled ? 1 + kScaleWriters : 1);
      mbarrier_init(at.received(), 1);
      mbarrier_init_fence();
      if constexpr (SPLIT > 1) mbarrier_arrive_expect(at.received(), PARTIAL_BYTES);
    }
    __syncwarp();
    named_barrier_arrive(1, THREADS);
    if constexpr (SPLIT * CM > 1) cluster_arrive_relaxed();
    if constexpr (CM > 1) cluster_wait();
    if (elect_one()) {
      produce(map_a, map_b, pipeline, at, tile.row_a, tile.row_b, m, n, k, first, last, b_once != 0,
              reads_operands(alpha));
    }
    __syncwarp();
    if constexpr (SPLIT > 1) cluster_wait();
    if constexpr (SUMS_IN_RING) {
      cluster_arrive_relaxed();
      cluster_wait();
    }
  } else if (kScaled && warp > CONSUMER_THREADS / 32) {
    named_barrier_sync(1, THREADS);
    if constexpr (SPLIT * CM > 1) {
      cluster_arrive_relaxed();
      cluster_wait();
    }
    const ScaleTensors scales{scale_a, scale_b, m, n, lds, (k + kScaleBlock - 1) / kScaleBlock};
    produce_scales(scales, pipeline, at, tile.row_a, tile.row_b, first, last);
    if constexpr (SUMS_IN_RING) {
      cluster_arrive_relaxed();
      cluster_wait();
    }
  } else {
    prefetch_stages(b, k, ldb, tile.row_b, n, first, last);
    named_barrier_sync(1, THREADS);
    if constexpr (SPLIT * CM > 1) {  // all blocks run, and their barriers are ready
      cluster_arrive_relaxed();
      cluster_wait();
    }
    if constexpr (SLICES == 1) {
      tile.d.prefetch<BM, BN, CONSUMER_THREADS>(threadIdx.x, tile.row_a, tile.row_b);
    }
    Sums sums;
    consume(sums, pipeline, at, first, last);
    if constexpr (SUMS_IN_RING) {  // no block of the cluster reads its ring any more
      cluster_arrive_relaxed();
      cluster_wait();
    }
    const auto deliver = [&](int index, unsigned thread, const Unit& unit) {
      if constexpr (SLICES == 1) {
        store(tile, index, thread, unit);
      } else {
#pragma unroll
        for (int half = 0; half < STACK; ++half) {
          slice_sums(slices, tile, place.slice, half, index * CONSUMER_THREADS + thread) =
              unit.sums[half];
        }
      }
    };
    if constexpr (SPLIT > 1) {
      reduce(sums, at, rank, deliver);
    } else if constexpr (kStaged) {
      store_staged<out_t>(tile, sums, at);
    } else {
#pragma unroll
      for (int i = 0; i < kFragments; ++i) deliver(i, threadIdx.x, unit_of(sums, i));
    }
  }
}

// Adds the sums of the slices and stores D. Each thread has one unit of a tile.
extern "C" __global__ void __launch_bounds__(kFinishThreads)
    matmul_finish(float4* slices, out_t* __restrict__ d, int m, int n, int ldd,
                  const out_t* __restrict__ column_bias, const out_t* __restrict__ addend,
                  float alpha, float beta, out_t* __restrict__ d_k, out_t* __restrict__ d_v) {
  constexpr int kBlocks = kUnits / kFinishThreads;  // of a tile
  release_next_kernel();
  await_previous_kernel();
  const Tile tile(d, m, n, ldd, column_bias, addend, alpha, beta, blockIdx.y, blockIdx.x / kBlocks,
                  gridDim.y, gridDim.x / kBlocks, d_k, d_v);
  const unsigned unit = blockIdx.x % kBlocks * kFinishThreads + threadIdx.x;
  Unit whole;
#pragma unroll
  for (int half = 0; half < STACK; ++half) {
    float4& sum = whole.sums[half];
    sum = slice_sums(slices, tile, 0, half, unit);
#pragma unroll
    for (int slice = 1; slice < SLICES; ++slice) {
      add(sum, slice_sums(slices, tile, slice, half, unit));
    }
  }
  store(tile, unit / CONSUMER_THREADS, unit % CONSUMER_THREADS, whole);
}
