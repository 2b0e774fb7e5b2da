// Attention over latents for few rows of queries (Hopper): keys in the rows of wgmma, and the
// queries of all heads in its columns, so that 8 heads cost 8 columns and no padding to 64.
//
// A block takes ROWS rows of a sequence, which are its heads times its queries, and SPLIT keys. One
// warp loads tiles of 64 keys into a ring. Every tile is one warpgroup's: scores S^T = C Q^T, 64
// keys by ROWS, their softmax in registers, and results O^T += C^T P^T, all latents by ROWS, with
// the same tile read as rows and as columns. So warpgroups meet only at the end, and one computes
// while the other waits.
//
// A row's largest score and its sum are over the keys, which are in all four warps: they exchange
// the largest scores once a tile. The scores and the results of a row are in the same column, and
// so a thread rescales what it has by factors that it has.
//
// At the end warpgroups, the blocks of a cluster and clusters add up their sums (split_sums.cuh),
// each relative to its largest score.
//
// A weight of zero times a NaN is NaN. So latents that are not finite are overwritten with zeros
// in the tiles of which some query does not see all keys, once the tile's scores have been
// computed. A query that sees such a key has a score of NaN, and with it all of its result.

#include "layout.cuh"
#include <kernwright/attention/split_sums.cuh>
#include <kernwright/config.cuh>
#include <kernwright/math/exp.cuh>
#include <kernwright/math/types.cuh>
#include <kernwright/mla/sequences.cuh>
#include <kernwright/ptx/cluster.cuh>
#include <kernwright/ptx/cp_async.cuh>
#include <kernwright/ptx/mbarrier.cuh>
#include <kernwright/ptx/programmatic.cuh>
#include <kernwright/ptx/stmatrix.cuh>
#include <kernwright/ptx/tma.cuh>
#include <kernwright/ptx/warp_roles.cuh>
#include <kernwright/tile/frame.cuh>
#include <kernwright/tile/softmax_tile.cuh>

namespace {

using Share = MlaShare<ROWS, CLUSTER>;
using Sums = SplitSums<WGS, CLUSTER, ROWS, kGroups, kConsumers, kAtOnce>;

// The keys in memory.
struct Keys {
  const TensorMap &map_cache, &map_rope;
  const dtype_t *cache, *rope_cache;
  int ld_cache, ld_rope;
};

// Loads a tile by boxes of BOX_KEYS keys and 64 elements, which the lanes of a warp share. Keys
// that the sequence has no pages for load as zeros.
__device__ __forceinline__ void load_boxes(unsigned stage, unsigned full, const Keys& keys,
                                           const MlaSequences& of, const Share& share, int key) {
  constexpr int kCount = kBoxes * (kTile / BOX_KEYS);
#pragma unroll
  for (int first = 0; first < kCount; first += 32) {
    const int i = first + threadIdx.x % 32;
    if (i >= kCount) continue;
    const int box = i % kBoxes, piece = i / kBoxes, of_piece = key + piece * BOX_KEYS;
    long long token = share.sequence.key_first + of_piece;
    int outer = 0;
    if constexpr (cache == cache_paged) {
      const long long row = 1ll * share.sequence.number * of.table_pitch;
      outer = of_piece < share.sequence.keys ? of.page_table[row + of_piece / page] : of.pages;
      token = of_piece % page;
    } else if constexpr (lengths != lengths_ragged) {
      outer = share.sequence.number;
      token = of_piece;
    }
    const unsigned to = stage + box * kBoxBytes + piece * BOX_KEYS * kSwizzleBytes;
    const bool is_rope = config::keys == keys_apart && box >= kLatentBoxes;
    const int at[3] = {(is_rope ? box - kLatentBoxes : box) * kOfBox, static_cast<int>(token),
                       outer};
    tma_load(to, is_rope ? keys.map_rope : keys.map_cache, at, full);
  }
}

// Copies a tile key by key, to the places that TMA would give its elements. A lane has one of the
// tile's tokens of each 32, and eight lanes copy 128 bytes.
__device__ __forceinline__ void copy_keys(unsigned stage, const Keys& keys, const MlaSequences& of,
                                          const Share& share, const long long (&tokens)[2]) {
  const int lane = threadIdx.x % 32, group = lane % 8;
#pragma unroll 2
  for (int first = 0; first < kTile; first += 4) {
    const int key = first + lane / 8;
    const long long token = __shfl_sync(~0u, first < 32 ? tokens[0] : tokens[1], key % 32);
    const unsigned to = stage + key * kSwizzleBytes + swizzled_group(key, group);
    const dtype_t* const row = keys.cache + max(0ll, token) * keys.ld_cache + group * 8;
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {
      const bool is_rope = config::keys == keys_apart && box >= kLatentBoxes;
      const int element = (is_rope ? box - kLatentBoxes : box) * kOfBox;
      const int size = is_rope ? rope_width : cache_width;
      const dtype_t* const from =
          is_rope ? keys.rope_cache + max(0ll, token) * keys.ld_rope + group * 8 : row;
      const bool exists = token >= 0 && element + group * 8 < size;
      cp_async<16>(to + box * kBoxBytes, exists ? from + element : keys.cache, exists ? 16 : 0);
    }
  }
}

// Run by one warp.
__device__ __forceinline__ void produce(TilePipeline pipeline, const Keys& keys,
                                        const MlaSequences& of, const Share& share, Addresses at) {
#pragma unroll 1
  for (int key = share.begin; key < share.end; key += kTile) {
    if constexpr (kGathered) {
      long long tokens[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int own = key + half * 32 + static_cast<int>(threadIdx.x % 32);
        tokens[half] = own < share.sequence.keys ? share.sequence.token_of(own, of) : -1;
      }
      pipeline.producer_wait();
      copy_keys(at.stage(pipeline.stage()), keys, of, share, tokens);
      mbarrier_arrive_copied(pipeline.full());
    } else {
      pipeline.warp_acquire(kStageBytes);
      load_boxes(at.stage(pipeline.stage()), pipeline.full(), keys, of, share, key);
    }
    pipeline.advance();
  }
}

// Copies the rows of the queries to boxes as wgmma reads them; all that is behind a row, and rows
// that do not exist, are zeros. Run by all consumers.
__device__ __forceinline__ void load_queries(const dtype_t* __restrict__ q,
                                             const dtype_t* __restrict__ q_rope, int ldq,
                                             int ldq_rope, const Share& share, Addresses at) {
  constexpr int kVectors = kBoxes * 8;  // of a row
#pragma unroll 4
  for (int i = threadIdx.x; i < ROWS * kVectors; i += kConsumers) {
    const int row = i / kVectors, vector = i % kVectors, element = vector * 8;
    float4 x{0, 0, 0, 0};
    if (row < share.rows && element < width) {
      const long long token = share.sequence.q_first + share.query_of(row);
      const int head = share.head_of(row);
      const bool is_rope = query == query_split && element >= latent;
      const dtype_t* const from = is_rope ? q_rope + token * ldq_rope + head * rope_width - latent
                                          : q + token * ldq + head * query_width;
      x = *reinterpret_cast<const float4*>(from + element);
    }
    store_quad(at.queries() + vector / 8 * kQueryBoxBytes + row * kSwizzleBytes +
                   swizzled_group(row, vector % 8),
               x);
  }
}

// Clears the latents that are not finite of the keys [first, 64) of a tile. Run by one warpgroup.
__device__ __forceinline__ void clear_keys(unsigned tile, int first) {
  constexpr int kVectors = kLatentBoxes * 8;
  for (int i = first * kVectors + threadIdx.x % 128; i < kTile * kVectors; i += 128) {
    const int row = i / kVectors, vector = i % kVectors;
    clear_not_finite(tile + vector / 8 * kBoxBytes + row * kSwizzleBytes + vector % 8 * 16);
  }
}

// The column of a thread's number i of its Columns.
__device__ __forceinline__ int column_of(int i) { return accumulator_column() + i / 2 * 8 + i % 2; }
// Returns which of a thread's Columns register `i` of an accumulator is in.
__device__ __forceinline__ constexpr int column_of_register(int i) { return i / 4 * 2 + i % 2; }

// Multiplies every WGS-th tile of a share. Run by one warpgroup.
class Worker {
 public:
  __device__ __forceinline__ Worker(Addresses at, int group, float scale)
      : at_(at),
        pipeline_(at.barriers()),
        group_(group),
        warp_(warp_in_group()),
        negates_(scale < 0),
        unit_(mla_unit(scale)) {
#pragma unroll
    for (int i = 0; i < ROWS / 4; ++i) {
      largest_[i] = hidden_score();
      sum_[i] = 0;
    }
  }

  __device__ __forceinline__ void run(Acc& o, const Share& share) {
    clear(o);
    const OperandQ q(at_.queries());
    const OperandP p(at_.weights(group_));
    // The end of the keys that all rows see, and the ends of those that the thread's rows see.
    const int all_see = share.sequence.end_of(share.query_of(0));
    int ends[ROWS / 4];
#pragma unroll
    for (int i = 0; i < ROWS / 4; ++i) {
      const int row = min(column_of(i), share.rows - 1);
      ends[i] = min(share.end, share.sequence.end_of(share.query_of(row)));
    }
    pipeline_.skip(group_);
#pragma unroll 1
    for (int key = share.begin + group_ * kTile; key < share.end; key += WGS * kTile) {
      pipeline_.consumer_wait();
      // wgmma reads as TMA does, and cp.async writes as ordinary stores do.
      if constexpr (kGathered) tma_store_fence();
      const unsigned tile = at_.stage(pipeline_.stage());
      Scores s;
      wgmma_pin(s[0]);
      wgmma_fence();
      multiply<dtype_t>(s, OperandC(tile), 0, q, 0, kBoxes * kStepsOfBox, false);
      wgmma_commit();
      wgmma_wait<0>();
      wgmma_pin(s[0]);
      if (negates_) {
#pragma unroll
        for (float& x : s[0]) x = -x;
      }
      const bool whole = key + kTile <= min(all_see, share.end);
      if (!whole) hide(s[0], ends, key);
      Columns factor;
      raise(s[0], factor);
      weigh(s[0]);
      store_weights(s[0]);
      if (!whole) clear_keys(tile, max(0, min(all_see, share.end) - key));
      tma_store_fence();
      bool changes = false;
#pragma unroll
      for (const float x : factor) changes |= x != 1;
      if (__any_sync(~0u, changes)) {
#pragma unroll
        for (int box = 0; box < kLatentBoxes; ++box) {
#pragma unroll
          for (int i = 0; i < ROWS / 2; ++i) o[box][i] *= factor[column_of_register(i)];
        }
      }
      barrier();  // all weights are there
#pragma unroll
      for (int box = 0; box < kLatentBoxes; ++box) wgmma_pin(o[box]);
      wgmma_fence();
      multiply<dtype_t>(o, OperandV(tile), kOfBox, p, 0, kTile / 16, true);
      wgmma_commit();
      wgmma_wait<0>();
#pragma unroll
      for (int box = 0; box < kLatentBoxes; ++box) wgmma_pin(o[box]);
      pipeline_.consumer_release(pipeline_.stage());
      pipeline_.skip(WGS);
    }
  }

  // Stores the warpgroup's sums and their parts in shared memory, where keys were.
  __device__ __forceinline__ void store_sums(const Acc& o) {
#pragma unroll
    for (int i = 0; i < ROWS / 4; ++i)
      sum_[i] = over_keys(sum_[i], [](float a, float b) { return a + b; });
    send(sum_);
#pragma unroll
    for (int box = 0; box < kLatentBoxes; ++box) {
#pragma unroll
      for (int i = 0; i < ROWS / 2; ++i) {
        const int element = box * kOfBox + warp_ * 16 + accumulator_row() + register_row(i);
        store_number(at_.sums(group_, column_of(column_of_register(i))) + element * 4,
                     __float_as_int(o[box][i]));
      }
    }
    barrier();
    if (warp_ != 0 || threadIdx.x % 32 >= 4) return;
#pragma unroll
    for (int i = 0; i < ROWS / 4; ++i) {
      float sum = 0;
#pragma unroll
      for (int warp = 0; warp < 4; ++warp) sum += load_shared<float>(exchanged(warp, i));
      store_shared_pair(at_.part(group_, column_of(i)), __float_as_uint(origin(i)),
                        __float_as_uint(sum));
    }
  }

 private:
  __device__ __forceinline__ void barrier() const { named_barrier_sync(2 + group_, 128); }

  // Hides the keys that a row does not see.
  static __device__ __forceinline__ void hide(float (&s)[ROWS / 2], const int (&ends)[ROWS / 4],
                                              int key) {
    key += warp_in_group() * 16 + accumulator_row();
#pragma unroll
    for (int i = 0; i < ROWS / 2; ++i) {
      if (key + register_row(i) >= ends[column_of_register(i)]) s[i] = hidden_score();
    }
  }

  // Reduces over the lanes that have the same columns.
  template <typename Reduce>
  static __device__ __forceinline__ float over_keys(float x, const Reduce& reduce) {
#pragma unroll
    for (int lane = 4; lane < 32; lane *= 2) x = reduce(x, __shfl_xor_sync(~0u, x, lane));
    return x;
  }

  // Passes a warp's numbers, which the lanes of a column have all, to the other warps.
  __device__ __forceinline__ void send(const Columns& x) const {
    if (threadIdx.x % 32 >= 4) return;
#pragma unroll
    for (int i = 0; i < ROWS / 4; i += 2) {
      store_shared_pair(exchanged(warp_, i), __float_as_uint(x[i]), __float_as_uint(x[i + 1]));
    }
  }
  __device__ __forceinline__ unsigned exchanged(int warp, int i) const {
    return at_.exchange(group_, turn_, warp) + column_of(i) * 4;
  }

  // Raises the largest scores to the tile's largest; returns the factors for the sums so far.
  __device__ __forceinline__ void raise(const float (&s)[ROWS / 2], Columns& factor) {
    Columns next;
#pragma unroll
    for (int i = 0; i < ROWS / 4; ++i) {
      const int first = i / 2 * 4 + i % 2;
      next[i] =
          over_keys(larger(s[first], s[first + 2]), [](float a, float b) { return larger(a, b); });
    }
    send(next);
    barrier();
#pragma unroll
    for (int i = 0; i < ROWS / 4; i += 2) {
#pragma unroll
      for (int warp = 0; warp < 4; ++warp) {
        const float2 pair = load_shared_pair<float>(exchanged(warp, i));
        next[i] = larger(next[i], pair.x);
        next[i + 1] = larger(next[i + 1], pair.y);
      }
    }
    turn_ ^= 1;
#pragma unroll
    for (int i = 0; i < ROWS / 4; ++i) {
      // As in SoftmaxTile, a product that is rounded the same way wherever it is computed.
      const float before = __fmul_rn(largest_[i], unit_);
      largest_[i] = larger(largest_[i], next[i]);
      factor[i] = exp2_fast(before - base(i));
      sum_[i] *= factor[i];
    }
  }

  // Turns scores into weights, and adds them up.
  __device__ __forceinline__ void weigh(float (&s)[ROWS / 2]) {
#pragma unroll
    for (int i = 0; i < ROWS / 2; ++i) {
      const int column = column_of_register(i);
      s[i] = exp2_fast(fmaf(s[i], unit_, -base(column)));
      sum_[column] += s[i];
    }
  }

  // Stores the weights of the warp's 16 keys, a row of 64 keys for each column.
  __device__ __forceinline__ void store_weights(const float (&p)[ROWS / 2]) const {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int first = 0; first < ROWS; first += 16) {
      // Two blocks of 8 columns, with the keys 0 to 7 and 8 to 15 of each. The second of a pair
      // that is none repeats the first.
      const int second = first + 8 < ROWS ? first + 8 : first;
      const int row = (lane < 16 ? first : second) + lane % 8;
      const unsigned to =
          at_.weights(group_) + row * kSwizzleBytes + swizzled_group(row, warp_ * 2 + lane / 8 % 2);
      const auto word = [&](int column, int half) {
        return pack_pair<dtype_t>(p[column / 2 + half * 2], p[column / 2 + half * 2 + 1]);
      };
      stmatrix_x4_transposed(to, word(first, 0), word(first, 1), word(second, 0), word(second, 1));
    }
  }

  // Returns the largest score in base 2. A row that has seen nothing has weights of zero, not NaN.
  __device__ __forceinline__ float base(int i) const {
    return largest_[i] == hidden_score() ? 0.0f : __fmul_rn(largest_[i], unit_);
  }
  __device__ __forceinline__ float origin(int i) const {
    return largest_[i] == hidden_score() ? hidden_score() : base(i);
  }

  Addresses at_;
  TilePipeline pipeline_;
  int group_, warp_;
  bool negates_;
  float unit_;
  int turn_ = 0;
  Columns largest_;
  Columns sum_;  // this thread's parts
};

}  // namespace

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    mla_attention_swapped(KW_PARAMETERS(mla_attention_swapped)) {
  extern __shared__ unsigned char memory[];
  const Addresses at{aligned_shared(memory)};
  const int warp = warp_number();
  if (warp == 4 * WGS && elect_one()) {
    tma_prefetch(map_cache);
    if constexpr (config::keys == keys_apart) tma_prefetch(map_rope);
    TilePipeline(at.barriers()).init(4, kLoaders);
    if constexpr (CLUSTER > 1) mbarrier_init(at.landed(), 1);
    mbarrier_init_fence();
  }
  __syncthreads();
  release_next_kernel();
  await_previous_kernel();
  const MlaSequences of{q_offsets, kv_offsets, kv_lengths, page_table, q_len,
                        kv_len,    q_tokens,   kv_tokens,  pages,      ld_table};
  const Share share(of, ROW_TILES, SPLITS, SPLIT);
  // All blocks of a cluster end here, or none.
  if (share.rows == 0 || share.split / CLUSTER * CLUSTER >= share.splits) return;
  if (warp >= 4 * WGS) {
    registers_release<kRegisters.producer>();
    if (warp == 4 * WGS) {
      produce(TilePipeline(at.barriers()),
              {map_cache, map_rope, cache, rope_cache, ld_cache, ld_rope}, of, share, at);
    }
    if constexpr (CLUSTER > 1) cluster_arrive();
    return;
  }
  registers_claim<kRegisters.consumer>();
  load_queries(q, q_rope, ldq, ldq_rope, share, at);
  tma_store_fence();
  named_barrier_sync(1, kConsumers);
  Worker worker(at, warpgroup_number(), scale);
  Acc acc;
  worker.run(acc, share);
  // Sums are where keys and queries were, of this block and of the others of its cluster.
  named_barrier_sync(1, kConsumers);
  if constexpr (CLUSTER > 1) cluster_arrive();
  worker.store_sums(acc);
  named_barrier_sync(1, kConsumers);
  const Sums::Workspace workspace{counters, lines};
  Sums::add_up(share, share.rows, MlaResults{o, lse, sinks, q_tokens, ldo}, workspace, at);
}
