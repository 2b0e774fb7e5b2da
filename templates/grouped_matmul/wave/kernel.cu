// d[r, n] = a[r, k] * b[group of r, n, k]^T, with a bias, activated or gated, for Hopper.
//
// As many blocks as the device has multiprocessors walk the tiles of all groups
// (group_schedule.cuh). One warp of a block is the producer: it fills a ring of stages in shared
// memory by TMA. The other warpgroups are consumers: they multiply from the ring with wgmma.
//
// The product is computed transposed. Columns of d, which are rows of b, are the 64 rows of wgmma,
// and the rows of a tile are its second dimension, which may be any of BM / STEP widths. So a tile
// of few rows costs few products, and its loads are as many boxes of BOX rows as it needs. A box
// may reach into the rows of the next group: their sums are dropped.
//
// The sums of 64 columns are rounded, transposed through shared memory and stored in rows of 128
// bytes by ordinary stores, which rows of another group do not get.
//
// TEAM      consumers share a tile, each with BLOCKS blocks of 64 rows of b
// PINGPONG  a consumer has a whole tile, and two take turns
// CN        blocks of a cluster take neighbouring columns of the same rows, which they load once
// fp8       a second warp copies the scales of a stage, which its sums are multiplied by
// gate      block 0 of a consumer has 64 gates, and block 1 the columns that they open. If they
//           interleave, each block has both in turn, and threads exchange them
// kn        boxes of 64 columns of b and a stage of k, which wgmma reads along the columns
// indexed   two warps beside the producer copy the rows of a, which TMA cannot gather

#include "layout.cuh"
#include <kernwright/matmul/expert_epilogue.cuh>
#include <kernwright/matmul/multiply_stages.cuh>
#include <kernwright/matmul/promotion.cuh>
#include <kernwright/ptx/cluster.cuh>
#include <kernwright/ptx/cp_async.cuh>
#include <kernwright/ptx/programmatic.cuh>
#include <kernwright/ptx/stmatrix.cuh>
#include <kernwright/ptx/tma.cuh>
#include <kernwright/ptx/warp_roles.cuh>
#include <kernwright/tile/frame.cuh>

namespace {

// Fills the ring with the operands of each tile. Run by the producer, one warp; one of its threads
// loads.
__device__ __forceinline__ void produce(const TensorMap& map_a, const TensorMap& map_b,
                                        Schedule& schedule, TilePipeline& pipeline, Addresses at,
                                        int n, int k, int steps) {
  constexpr bool kStacked = gate == gate_stacked;
  constexpr int kBoxesB = kStacked || kTurns ? BN / 64 : 1;
  const int rank = static_cast<int>(blockIdx.x) % CN;
  const bool leads = elect_one();
  while (schedule.next()) {
    if (leads) {
      const int boxes = (schedule.rows() + BOX - 1) / BOX;
      const unsigned bytes = ((kGathers ? 0 : boxes * BOX) + BN) * kRowBytes;
      const int row_b =
          (kTurns ? 0 : schedule.group() * (STACK * n)) + schedule.column() * kColumnStep;
#pragma unroll 1
      for (int step = 0; step < steps; ++step) {
        pipeline.producer_acquire(bytes);
        const int stage = pipeline.stage();
        const unsigned full = pipeline.full();
#pragma unroll
        for (int i = 0; i < kBoxesB; ++i) {
          const int row = row_b + (kStacked ? i / 2 * 64 + i % 2 * n : i * 64);
          const int depth = step * kDepth;
          if constexpr (kTurns) {
            tma_load(at.b(stage) + i * 64 * kRowBytes, map_b, row, schedule.group() * k + depth,
                     full);
          } else {
            tma_load(at.b(stage) + i * 64 * kRowBytes, map_b, depth, row, full);
          }
        }
#pragma unroll
        for (int box = 0; box < BM / BOX; ++box) {
          if (!kGathers && box < boxes && box % CN == rank) {
            tma_load_for<CN>(at.a(stage) + box * BOX * kRowBytes, map_a, step * kDepth,
                             schedule.first_row() + box * BOX, full, (1u << CN) - 1, false);
          }
        }
        pipeline.advance();
      }
    }
    __syncwarp();
  }
  if constexpr (CN > 1) {
    if (leads) pipeline.producer_drain();
  }
}

// Returns the scales of the schedule's present tile. The scales of b begin with the block of the
// tile's first column. The second block is the next one or, with a gate, the block of the rows that
// the gates open.
__device__ __forceinline__ ScaleTensors scales_of_tile(const float* scale_a, const float* scale_b,
                                                       const Schedule& schedule, int n,
                                                       int blocks_of_k, int places_of_group,
                                                       int all_places) {
  const int column = schedule.column(), block = column / kScaleBlock;
  const bool masked = layout == layout_masked;
  const long long blocks_of_b = (STACK * n + kScaleBlock - 1) / kScaleBlock;
  const long long first_b = (schedule.group() * blocks_of_b + block) * blocks_of_k;
  const long long first_a =
      masked ? static_cast<long long>(schedule.group()) * blocks_of_k * places_of_group : 0;
  const int rest = n - block * kScaleBlock;  // columns
  return {scale_a + first_a,
          scale_b + first_b,
          masked ? places_of_group : all_places,
          STACK == 2 ? (rest > 0 ? 2 * kScaleBlock : 0) : rest,
          STACK == 2 ? n / kScaleBlock * blocks_of_k : blocks_of_k,
          blocks_of_k};
}

// Copies the scales of each stage. Run with scales of blocks, by one warp beside the producer.
__device__ __forceinline__ void produce_scales(const float* scale_a, const float* scale_b,
                                               Schedule& schedule, TilePipeline& pipeline,
                                               Addresses at, int n, int steps, int places_of_group,
                                               int all_places) {
  while (schedule.next()) {
    const ScaleTensors from =
        scales_of_tile(scale_a, scale_b, schedule, n, steps, places_of_group, all_places);
    const int row =
        schedule.first_row() - (layout == layout_masked ? schedule.group() * places_of_group : 0);
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      pipeline.producer_wait();
      at.scales(pipeline.stage()).load(from, row, 0, step);
      arrive_with_scales(pipeline.full());
      pipeline.advance();
    }
  }
}

// Copies the rows of a of each stage. Run with an indexed a, by kGatherers warps beside the
// producer, which take 4 rows of every 4 * kGatherers in turn: this one is number `member` of them.
// A lane knows which rows of a 1 of 32 of the warp's rows are.
__device__ __forceinline__ void produce_rows(const dtype_t* a, const int* row_of,
                                             Schedule& schedule, TilePipeline& pipeline,
                                             Addresses at, int k, int steps, int member) {
  constexpr int kVector = 16 / sizeof(dtype_t);
  constexpr int kPassRows = 4 * kGatherers, kPasses = BM / kPassRows;
  constexpr int kKnown = (kPasses + 7) / 8;
  const int lane = threadIdx.x % 32, piece = lane % 8;
  while (schedule.next()) {
    int known[kKnown];
#pragma unroll
    for (int i = 0; i < kKnown; ++i) {
      const int row = (i * 8 + lane / 4) * kPassRows + member * 4 + lane % 4;
      known[i] = row < schedule.rows() ? row_of[schedule.first_row() + row] : 0;
    }
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      const int column = step * kDepth + piece * kVector;
      const bool exists = column < k;
      pipeline.producer_wait();
      const unsigned stage = at.a(pipeline.stage());
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) {
        if (pass * kPassRows >= schedule.rows()) break;
        const int row = pass * kPassRows + member * 4 + lane / 8;
        const long long of_a = __shfl_sync(~0u, known[pass / 8], pass % 8 * 4 + lane / 8);
        cp_async<16>(stage + row * kRowBytes + swizzled_group(row, piece),
                     a + of_a * k + (exists ? column : 0), exists ? 16 : 0);
      }
      mbarrier_arrive_copied(pipeline.full());
      pipeline.advance();
    }
  }
}

// The operands of a stage: rows of b from the consumer's first one on, which wgmma takes as its
// own, and rows of a.
struct Operands {
  WgmmaOperand<kMajorB, BN, kDepth> b;
  WgmmaOperand<Major::k, BM, kDepth> a;

  __device__ __forceinline__ Operands(Addresses at, int stage, int first_b)
      : b(at.b(stage), first_b), a(at.a(stage)) {}
};

// Puts the sums over `steps` stages into d, for the rows of b from `first_b` on and N rows of a.
// Calls `all_landed` once the last stage has landed.
template <int N, typename AllLanded>
__device__ __forceinline__ void multiply_tile(Acc<N>& d, TilePipeline& pipeline, Addresses at,
                                              int first_b, int steps, const AllLanded& all_landed) {
  // Each width has accumulators of its own. If they began undefined, the compiler would keep the
  // accumulators of all widths at once.
  clear(d);
  const auto operands = [=](int stage) {
    // wgmma reads as TMA does, and cp.async writes as ordinary stores do. Copies end later than the
    // warp that starts them could run a fence, so their readers do.
    if constexpr (kGathers) tma_store_fence();
    return Operands(at, stage, first_b);
  };
  multiply_stages<dtype_t, kProducts, true>(d, pipeline, steps, operands, [] {}, all_landed);
}

// Multiplies a tile with scales of blocks: the tensor cores sum a stage, which is multiplied by its
// scales and added in fp32 while another consumer multiplies. `block_b` is the block of the first
// rows of b among the tile's blocks; with a gate, block i has a scale of its own.
template <int N>
__device__ __forceinline__ void multiply_scaled(Acc<N>& d, TilePipeline& pipeline, Addresses at,
                                                int first_b, int steps, int block_b) {
  float part[1][N / 2];  // defined from the start, as the accumulators
  clear(part[0]);
  clear(d);
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    pipeline.consumer_wait();
    const int stage = pipeline.stage();
    const auto [b, a] = Operands(at, stage, first_b);
#pragma unroll
    for (int i = 0; i < BLOCKS; ++i) {
      start_part<dtype_t>(part, b.from(i * 64), a, 0, kProducts);
      const ColumnFactors<N> factors(at.scales(stage), STACK == 2 ? i : block_b);
      wgmma_wait<0>();
      wgmma_pin(part[0]);
      factors.add(d[i], part[0]);
    }
    __syncwarp();  // all lanes have read the scales
    pipeline.consumer_release(stage);
    pipeline.advance();
  }
}

// The destination of a tile's rows: `first` is the element of its first row in column `column`.
struct Target {
  out_t* first;
  int rows, columns, pitch;
};

// Returns this thread's column of d among 64 whose sums a block has, in the first or second half of
// its registers' rows.
__device__ __forceinline__ int column_of_thread(int half) {
  const int thread = threadIdx.x % 128, warp = thread / 32, place = thread % 32 / 4;
  if constexpr (kInterleaves) return half * 32 + warp * 8 + place % 2 * 4 + place / 2;
  return warp * 16 + half * 8 + place;
}

// Gathers the gates of two blocks in `first` and the sums that they open in `second`, if both take
// turns in each block. Of its two columns in a block a thread has two gates, or the two sums that
// its neighbour's gates open. It keeps one of them and exchanges the other one for what that lacks.
template <int N>
__device__ __forceinline__ void separate(float (&first)[N / 2], float (&second)[N / 2]) {
  const bool has_gates = threadIdx.x / 4 % 2 == 0;
  const auto exchange = [=](float& low, float& high) {
    const float received = __shfl_xor_sync(~0u, has_gates ? high : low, 4);
    const float gate = has_gates ? low : received, other = has_gates ? received : high;
    low = gate;
    high = other;
  };
#pragma unroll
  for (int i = 0; i < N / 2; i += 4) {
#pragma unroll
    for (int j = i; j < i + 2; ++j) {
      exchange(first[j], first[j + 2]);
      exchange(second[j], second[j + 2]);
      const float other = first[j + 2];
      first[j + 2] = second[j];
      second[j] = other;
    }
  }
}

// Brings eight staged columns of d into their order.
__device__ __forceinline__ float4 in_order(float4 x) {
  if constexpr (kInterleaves) {  // they are 0, 4, 1, 5, 2, 6, 3, 7
    const auto both = [](float first, float second, unsigned halves) {
      return __uint_as_float(__byte_perm(__float_as_uint(first), __float_as_uint(second), halves));
    };
    return {both(x.x, x.y, 0x5410), both(x.z, x.w, 0x5410), both(x.x, x.y, 0x7632),
            both(x.z, x.w, 0x7632)};
  }
  return x;
}

// Rounds and transposes the sums of 64 columns and stores them. Chunks of up to 32 rows go through
// two slots in turn, so one barrier for each is enough.
template <int N>
__device__ __forceinline__ void store_columns(const float (&d)[N / 2], const Target& target,
                                              Addresses at, int consumer, int& slot) {
  constexpr int kFragments = N / 8;
  constexpr int kInChunk = kStagedRows / 8;
  const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
#pragma unroll
  for (int first = 0; first < kFragments; first += kInChunk) {
    constexpr int kLast = kFragments - 1;
    const unsigned chunk = at.staging(consumer, slot);
    slot ^= 1;
#pragma unroll
    for (int i = first; i < first + kInChunk && i < kFragments; i += 2) {
      const int next = i < kLast ? i + 1 : i;  // the last one may be stored twice
      const int row = (lane / 16 ? next - first : i - first) * 8 + lane % 8;
      stmatrix_x4_transposed(
          chunk + row * kRowBytes +
              swizzled_group(row, kInterleaves ? warp + lane / 8 % 2 * 4 : warp * 2 + lane / 8 % 2),
          pack_pair<out_t>(d[4 * i], d[4 * i + 1]), pack_pair<out_t>(d[4 * i + 2], d[4 * i + 3]),
          pack_pair<out_t>(d[4 * next], d[4 * next + 1]),
          pack_pair<out_t>(d[4 * next + 2], d[4 * next + 3]));
    }
    named_barrier_sync(4 + consumer, 128);
    const int group = thread % 8;
#pragma unroll
    for (int i = 0; i < kStagedRows; i += 16) {
      const int row = i + thread / 8;
      if (row >= kStagedRows || first * 8 + row >= target.rows || group * 8 >= target.columns) {
        continue;
      }
      out_t* const to =
          target.first + static_cast<long long>(first * 8 + row) * target.pitch + group * 8;
      *reinterpret_cast<float4*>(to) =
          in_order(load_quad(chunk + row * kRowBytes + swizzled_group(row, group)));
    }
  }
}

// d, and the epilogue's tensors and scalars.
struct Results {
  out_t* d;
  const out_t* bias;
  float limit, gate_alpha;

  __device__ __forceinline__ ExpertEpilogue epilogue(int group, int n) const {
    return {bias + static_cast<long long>(group) * STACK * n, limit, gate_alpha,
            kInterleaves ? 1 : n, kColumnStep};
  }
};

template <int N, typename AllLanded>
__device__ __forceinline__ void do_tile(const Results& results, int n, const Schedule& schedule,
                                        TilePipeline& pipeline, Addresses at, int steps,
                                        int consumer, int& slot, const AllLanded& all_landed) {
  constexpr int kParts = BLOCKS / STACK;  // of 64 columns
  const int member = consumer % TEAM;
  const int first_column = schedule.column() + member * kParts * 64;
  const ExpertEpilogue epilogue = results.epilogue(schedule.group(), n);
  ExpertEpilogue::Addends addends[kParts][2];  // loaded while the tile is multiplied
#pragma unroll
  for (int i = 0; i < kParts * 2; ++i) {
    const int column = first_column + i / 2 * 64 + column_of_thread(i % 2);
    addends[i / 2][i % 2] = column < n ? epilogue.addends(column) : ExpertEpilogue::Addends{};
  }
  Acc<N> acc;
  const int first_b = member * BLOCKS * 64;
  if constexpr (SCALED) {
    multiply_scaled<N>(acc, pipeline, at, first_b, steps, first_b / kScaleBlock);
  } else {
    multiply_tile<N>(acc, pipeline, at, first_b, steps, all_landed);
  }
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    auto& sums = acc[i * STACK];
    auto& others = acc[i * STACK + STACK - 1];  // the sums that gates open
    if constexpr (kInterleaves) separate<N>(sums, others);
#pragma unroll
    for (int j = 0; j < N / 2; ++j) {
      sums[j] = epilogue.finished(sums[j], others[j], addends[i][j / 2 % 2]);
    }
    const int column = first_column + i * 64;
    const long long place = static_cast<long long>(schedule.first_row()) * n + column;
    store_columns<N>(sums, {results.d + place, schedule.rows(), n - column, n}, at, consumer, slot);
  }
}

// Calls do_tile with the smallest multiple of STEP that holds the tile's rows.
template <int N, typename... Arguments>
__device__ __forceinline__ void do_tile_of(int rows, Arguments&&... arguments) {
  if constexpr (N < BM) {
    if (rows > N) return do_tile_of<N + STEP>(rows, arguments...);
  }
  do_tile<N>(arguments...);
}

// Multiplies and stores tiles. Run by a consumer, one warpgroup.
__device__ __forceinline__ void consume(const Results& results, int n, Schedule& schedule,
                                        TilePipeline& pipeline, Addresses at, int steps,
                                        int consumer) {
  const auto leave_to_other = [&] {
    schedule.skip();
    pipeline.skip(steps);
  };
  int slot = 0;
  bool first_of_block = consumer == 0;
  if (PINGPONG && consumer == 1) leave_to_other();
  while (schedule.next()) {
    if constexpr (PINGPONG) {
      if (!first_of_block) named_barrier_sync(2 + consumer, 256);
      first_of_block = false;
    }
    // With PINGPONG the other consumer may begin once all stages of this tile have landed:
    // otherwise it might take a barrier that is a phase behind for one whose stage has landed.
    const auto all_landed = [&] {
      if (PINGPONG && !schedule.is_last()) named_barrier_arrive(2 + 1 - consumer, 256);
    };
    do_tile_of<STEP>(schedule.rows(), results, n, schedule, pipeline, at, steps, consumer, slot,
                     all_landed);
    if constexpr (PINGPONG) leave_to_other();
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    grouped_matmul_wave(KW_PARAMETERS(grouped_matmul_wave)) {
  extern __shared__ unsigned char memory[];
  const Addresses at{aligned_shared(memory)};
  const int role = warpgroup_number();
  const int warp = warp_number();
  const int steps = (k + kDepth - 1) / kDepth;

  if (warp == 1 && elect_one()) {
    tma_prefetch(map_a);
    tma_prefetch(map_b);
    TilePipeline(at.barriers())
        .init(TEAM * 4, SCALED     ? 1 + kScaleWriters
                        : kGathers ? 1 + kGatherers * 32
                                   : 1);
    mbarrier_init_fence();
  }
  release_next_kernel();
  await_previous_kernel();
  if (warp == 0) Schedule::build(at.table(), ends, counts);
  __syncthreads();
  if constexpr (CN > 1) {
    cluster_arrive();
    cluster_wait();
  }
  Schedule schedule(at.table(), n, GROUP, room);
  TilePipeline pipeline(at.barriers(), 0, static_cast<int>(blockIdx.x) % CN);

  if (role == 0) {
    registers_release<kRegisters.producer>();
    if (warp == 0) produce(map_a, map_b, schedule, pipeline, at, n, k, steps);
    if (SCALED && warp == 1) {
      produce_scales(scale_a, scale_b, schedule, pipeline, at, n, steps, room, places);
    }
    if (kGathers && warp >= 4 - kGatherers) {
      produce_rows(a, row_of, schedule, pipeline, at, k, steps, warp - (4 - kGatherers));
    }
  } else {
    registers_claim<kRegisters.consumer>();
    consume({d, bias, limit, gate_alpha}, n, schedule, pipeline, at, steps, role - 1);
  }
}
