// Attention for few queries a sequence, such as one new token (Hopper): keys and values are read
// once, as fast as the memory gives them.
//
// A block takes SPLIT keys of one head of k and v, and all queries that meet this head: the query
// heads that share it times the queries of the sequence, ROWS rows in M_TILES tiles of 16. One warp
// loads tiles of keys and values by TMA into a ring. Every other warp takes 16 keys of each tile
// and works on its own: scores by mma.sync, their softmax in registers, and products with the
// values. fp8 keys and values become fp16 between shared memory and products (narrow.cuh), and
// queries beside them too. At the end the warps of a block add up what they have, each relative to
// its largest score.
//
// Where a head's keys are split, the blocks of a cluster add up such sums in one another's shared
// memory. What more splits there are leave theirs in a workspace, and the last block of a head adds
// them up. A counter tells who is last; that block leaves it at zero.
//
// With a work list a block takes a slot of it for one head of k and v: pieces of one sequence after
// another, each as if it were the SPLIT keys of a block.

#include <kernwright/attention/boxes.cuh>
#include <kernwright/attention/narrow.cuh>
#include <kernwright/attention/plain_row.cuh>
#include <kernwright/attention/scales.cuh>
#include <kernwright/attention/schedule.cuh>
#include <kernwright/attention/scores.cuh>
#include <kernwright/attention/sequences.cuh>
#include <kernwright/config.cuh>
#include <kernwright/math/types.cuh>
#include <kernwright/ptx/cluster.cuh>
#include <kernwright/ptx/ldmatrix.cuh>
#include <kernwright/ptx/mbarrier.cuh>
#include <kernwright/ptx/mma.cuh>
#include <kernwright/ptx/programmatic.cuh>
#include <kernwright/ptx/stmatrix.cuh>
#include <kernwright/ptx/tma.cuh>
#include <kernwright/ptx/warp_roles.cuh>
#include <kernwright/tile/pipeline.cuh>
#include <kernwright/tile/softmax_tile.cuh>
#include <kernwright/tile/swizzle.cuh>

namespace {

using namespace kernwright;
using namespace kernwright::config;

constexpr int kGroup = heads / kv_heads;
constexpr int kKeys = 16;             // of a warp in a tile
constexpr int kTile = kKeys * WARPS;  // keys of a tile
constexpr int kKeyBytes = TileOfKeys<kTile>::kKeyBytes;
constexpr int kValueBytes = TileOfKeys<kTile>::kValueBytes;
constexpr int kStageBytes = kKeyBytes + kValueBytes;
constexpr int kRows = 16 * M_TILES;
constexpr int kGroups = head_dim_v / 4;      // of 4 columns of a row
constexpr int kOfGroup = 16 / sizeof(kv_t);  // elements of 16 bytes
constexpr int kConsumers = 32 * WARPS;

static_assert(STAGES * kStageBytes >= WARPS * kRows * kColumns * 4, "sums meet in the ring");

using operand_t = weight_t;
using TilePipeline = Pipeline<STAGES>;
using Scores = float[kKeys / 2];
using Sums = float[kColumns / 2];

struct Addresses {
  unsigned base;
  __device__ unsigned k(int stage) const { return base + stage * kStageBytes; }
  __device__ unsigned v(int stage) const { return k(stage) + kKeyBytes; }
  __device__ unsigned barriers() const { return base + STAGES * kStageBytes; }
  // The parts of all warps' rows, and whether this block is the last of its head.
  __device__ unsigned parts() const { return barriers() + TilePipeline::kBytes; }
  __device__ unsigned last() const { return parts() + WARPS * kRows * sizeof(SoftmaxPart); }
  // The parts of the block's rows, whose sums lie where those of warp 0 do.
  __device__ unsigned block_parts() const { return last() + 8; }
  // Sums of a warp's row, where the ring was.
  __device__ unsigned sums(int warp, int row) const {
    return base + (warp * kRows + row) * kColumns * 4;
  }
};

// The keys that a block takes of a head: those in [begin, end), in tiles from `begin` on.
struct Share {
  Sequence sequence;
  int kv_head, split, splits;  // of the head, those that have keys
  int begin, end;
  int place;  // of the head in the workspace

  // Each head has as many blocks.
  __device__ __forceinline__ Share(const Sequences& of, int splits_of_head, int keys_of_split)
      : sequence(blockIdx.x / splits_of_head / kv_heads, of),
        kv_head(blockIdx.x / splits_of_head % kv_heads),
        split(blockIdx.x % splits_of_head),
        place(blockIdx.x / splits_of_head * (splits_of_head / CLUSTER)) {
    // Windows begin anywhere; shares of a head begin where the first key that is seen does.
    const int first = sequence.queries > 0 ? sequence.first_key(0) / kTile * kTile : 0;
    const int seen = sequence.queries > 0 ? max(0, sequence.end_key(sequence.queries) - first) : 0;
    splits = max(1, (seen + keys_of_split - 1) / keys_of_split);
    begin = first + split * keys_of_split;
    end = min(first + seen, begin + keys_of_split);
  }
  // The piece of sequence `number` that a slot of a work list has.
  __device__ __forceinline__ Share(const Sequences& of, const ScheduleEntry& entry, int slot,
                                   int number, int kv_head)
      : sequence(number, of), kv_head(kv_head), split(0), splits(1), place(slot) {
    const Demand all(sequence.queries, sequence.keys, window);
    begin = max(number == entry.first ? entry.first_key : all.begin,
                sequence.first_key(0) / kTile * kTile);
    end = number == entry.last ? entry.last_end : all.end;
    if (number == entry.first) {
      split = slot - entry.first_begins;
      splits = entry.first_ends - entry.first_begins + 1;
      place = entry.first_begins;
    } else if (number == entry.last) {
      splits = entry.last_ends - slot + 1;
    }
  }
  // The head among those of all sequences.
  __device__ __forceinline__ int head() const { return sequence.number * kv_heads + kv_head; }
  // Where the workspace has the sums of the head's splits from CLUSTER * i on. A slot has those of
  // two sequences: of one that goes on in it, and of one that begins.
  __device__ __forceinline__ long long entry(int i) const {
    if constexpr (schedule == schedule_none) return place + i;
    return ((place + i) * 2ll + (i == 0 ? 1 : 0)) * kv_heads + kv_head;
  }
  __device__ __forceinline__ int tiles() const {
    return end > begin ? (end - begin + kTile - 1) / kTile : 0;
  }
};

__device__ __forceinline__ void produce(TilePipeline& pipeline, const TensorMap& map_k,
                                        const TensorMap& map_v, const Sequences& of,
                                        const Share& share, Addresses at) {
  const int tiles = share.tiles();
#pragma unroll 1
  for (int i = 0; i < tiles; ++i) {
    if (threadIdx.x % 32 == 0) pipeline.producer_acquire(kStageBytes);
    __syncwarp();
    const int key = share.begin + i * kTile;
    load_tokens<kBoxesD, kTile, kRowD>(at.k(pipeline.stage()), map_k, pipeline.full(), of,
                                       share.sequence, key, share.kv_head);
    load_tokens<kBoxesDv, kTile, kRowDv>(at.v(pipeline.stage()), map_v, pipeline.full(), of,
                                         share.sequence, key, share.kv_head);
    pipeline.advance();
  }
}

// Row r of the block is query r / kGroup of query head r % kGroup of the group.
__device__ __forceinline__ int query_of(int row) { return row / kGroup; }
__device__ __forceinline__ int head_of(int row, int kv_head) {
  return kv_head * kGroup + row % kGroup;
}

// The queries as operand a of mma.sync: of step s, rows lane / 4 and 8 on, elements 2 * (lane % 4)
// and 8 on, or those that meet fp8 keys. Rows that there are not, and elements behind the head, are
// zeros.
__device__ __forceinline__ void load_queries(unsigned (&a)[M_TILES][kStepsD][4],
                                             const dtype_t* __restrict__ q, const Share& share,
                                             int q_tokens, int ldq, int rows) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int m = 0; m < M_TILES; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = m * 16 + lane / 4 + half * 8;
      const bool is_row = row < rows;
      const dtype_t* from = q;
      if (is_row) {
        from += query_place(share.sequence, query_of(row), head_of(row, share.kv_head), q_tokens,
                            ldq, head_dim);
      }
#pragma unroll
      for (int step = 0; step < kStepsD; ++step) {
#pragma unroll
        for (int part = 0; part < 2; ++part) {
          const int element =
              step * 16 + (kNarrow ? narrow_element(lane % 4, part) : part * 8 + lane % 4 * 2);
          const bool is_there = is_row && (head_dim % 16 == 0 || element < head_dim);
          a[m][step][part * 2 + half] = is_there ? load_pair<operand_t>(from + element) : 0u;
        }
      }
    }
  }
}

// Makes bf16 queries fp16, which has more bits of fraction and fewer of exponent: they are
// multiplied by the power of two that takes the largest of them to 2^14, and all that are not
// smaller by 2^-28 are exact. Returns what the products have to be multiplied by.
__device__ __forceinline__ float fit_queries(unsigned (&a)[M_TILES][kStepsD][4]) {
  unsigned largest = 0;  // the bits of a bf16, with no sign
#pragma unroll
  for (int i = 0; i < M_TILES * kStepsD * 4; ++i) {
    const unsigned word = a[i / 4 / kStepsD][i / 4 % kStepsD][i % 4];
    const unsigned first = word & 0x7fff, second = word >> 16 & 0x7fff;
    if (first < 0x7f80) largest = max(largest, first);
    if (second < 0x7f80) largest = max(largest, second);
  }
  largest = __reduce_max_sync(~0u, largest);
  const int exponent = max(static_cast<int>(largest >> 7) - 127, -100);
  const float factor = __int_as_float((127 + 14 - exponent) << 23);
#pragma unroll
  for (int i = 0; i < M_TILES * kStepsD * 4; ++i) {
    unsigned& word = a[i / 4 / kStepsD][i / 4 % kStepsD][i % 4];
    const float2 pair = unpack_pair<bf16>(word);
    word = pack_pair<fp16>(pair.x * factor, pair.y * factor);
  }
  return __int_as_float((127 - 14 + exponent) << 23);
}

// Where 16 bytes of a row lie, in boxes with rows of `RowBytes`.
template <int RowBytes>
__device__ __forceinline__ unsigned group_address(unsigned tile, int row, int group) {
  constexpr int kOfBox = RowBytes / 16;
  return tile + (group / kOfBox * kTile + row) * RowBytes +
         swizzled_group<RowBytes>(row, group % kOfBox);
}
// Two neighbouring groups of 16 bytes of 16 keys, as b of mma.sync of two columns of scores: keys
// lane / 4 of the first 8 and of the others. Of fp8 the groups are those of two steps.
__device__ __forceinline__ unsigned key_address(unsigned keys, int first_key, int step) {
  const int lane = threadIdx.x % 32;
  if constexpr (kNarrow) {
    return group_address<kRowD>(keys, first_key + lane % 16, step + lane / 16);
  }
  const int row = first_key + lane / 16 * 8 + lane % 8, group = step * 2 + lane / 8 % 2;
  return group_address<kRowD>(keys, row, group);
}
// 32 bytes of 16 values.
__device__ __forceinline__ unsigned value_address(unsigned values, int first_key, int column) {
  const int lane = threadIdx.x % 32;
  const int row = first_key + lane % 16, group = column / kOfGroup + lane / 16;
  return group_address<kRowDv>(values, row, group);
}

// Overwrites by zeros what no query sees of a warp's values.
__device__ __forceinline__ void clear_unseen(unsigned values, int first_key, int begin, int end) {
  constexpr int kOfBox = kRowDv / 16;
  for (int i = threadIdx.x % 32; i < kBoxesDv * kKeys * kOfBox; i += 32) {
    const int key = i / kOfBox % kKeys, row = first_key + key;
    if (key >= begin && key < end) continue;
    store_quad(values + (i / kOfBox / kKeys * kTile + row) * kRowDv + i % kOfBox * 16,
               {0, 0, 0, 0});
  }
  __syncwarp();
}

// A warp's keys of all tiles.
__device__ __forceinline__ void consume(TilePipeline& pipeline, Sums (&sums)[M_TILES],
                                        SoftmaxTile (&softmax)[M_TILES],
                                        const unsigned (&q)[M_TILES][kStepsD][4],
                                        const Share& share, const Logits& logits, Addresses at,
                                        int warp) {
  const int lane = threadIdx.x % 32;
  const Sequence& sequence = share.sequence;
  const int first_key = warp * kKeys;
  const int first_seen = sequence.first_key(0);
  const int tiles = share.tiles();
#pragma unroll 1
  for (int i = 0; i < tiles; ++i) {
    const int key = share.begin + i * kTile + first_key;
    pipeline.consumer_wait();
    const unsigned keys = at.k(pipeline.stage()), values = at.v(pipeline.stage());
    if (key < share.end) {
      Scores s[M_TILES];
#pragma unroll
      for (int m = 0; m < M_TILES; ++m) {
#pragma unroll
        for (float& x : s[m]) x = 0;
      }
      unsigned narrow_keys[(kStepsD + 1) / 2][4];
      if constexpr (kNarrow) {
#pragma unroll
        for (int step = 0; step < kStepsD; step += 2) {
          ldmatrix_x4(narrow_keys[step / 2], key_address(keys, first_key, step));
        }
      }
#pragma unroll
      for (int step = 0; step < kStepsD; ++step) {
        unsigned b[4];
        if constexpr (kNarrow) {
          const auto& words = narrow_keys[step / 2];
          widen_keys<operand_t>(b, words[step % 2 * 2], words[step % 2 * 2 + 1]);
        } else {
          ldmatrix_x4(b, key_address(keys, first_key, step));
        }
#pragma unroll
        for (int m = 0; m < M_TILES; ++m) {
          mma_m16n8<operand_t>(reinterpret_cast<float(&)[4]>(s[m][0]), q[m][step], b[0], b[1]);
          mma_m16n8<operand_t>(reinterpret_cast<float(&)[4]>(s[m][4]), q[m][step], b[2], b[3]);
        }
      }
      const int last = mask == mask_none ? share.end : min(share.end, sequence.shift() + 1);
      const bool whole =
          key + kKeys <= last &&
          (mask != mask_window || key > sequence.queries - 1 + sequence.shift() - window);
      unsigned p[M_TILES][4];
#pragma unroll
      for (int m = 0; m < M_TILES; ++m) {
        const int row = m * 16 + lane / 4;
        const int positions[2] = {query_of(row) + sequence.shift(),
                                  query_of(row + 8) + sequence.shift()};
        const int head[2] = {head_of(row, share.kv_head), head_of(row + 8, share.kv_head)};
        make_scores(s[m], logits, positions, head, key);
        if (!whole) hide(s[m], positions, share.end, key);
        RowFactors factor;
        softmax[m].exponentiate(s[m], factor);
        if (__any_sync(~0u, factor[0] != 1 || factor[1] != 1)) rescale(sums[m], factor);
#pragma unroll
        for (int j = 0; j < 4; ++j) p[m][j] = pack_pair<operand_t>(s[m][2 * j], s[m][2 * j + 1]);
      }
      if (key + kKeys > sequence.keys || key < first_seen) {
        clear_unseen(values, first_key, first_seen - key, sequence.keys - key);
      }
      unsigned narrow[4];
#pragma unroll
      for (int column = 0; column < kColumns; column += 16) {
        unsigned b[4];
        if constexpr (kNarrow) {
          if (column % 32 == 0) {
            ldmatrix_transposed_x4(narrow, value_address(values, first_key, column));
          }
          widen_values(b, narrow[column / 16 % 2 * 2], narrow[column / 16 % 2 * 2 + 1]);
        } else {
          ldmatrix_transposed_x4(b, value_address(values, first_key, column));
        }
#pragma unroll
        for (int m = 0; m < M_TILES; ++m) {
          mma_m16n8<operand_t>(reinterpret_cast<float(&)[4]>(sums[m][column / 2]), p[m], b[0],
                               b[1]);
          mma_m16n8<operand_t>(reinterpret_cast<float(&)[4]>(sums[m][column / 2 + 4]), p[m], b[2],
                               b[3]);
        }
      }
    }
    tma_store_fence();
    __syncwarp();
    pipeline.consumer_release(pipeline.stage());
    pipeline.advance();
  }
}

// Computes those of the warp's rows again that a value may have reached that they do not see. A row
// with a score of NaN is NaN. The sums of tile `m` lie in shared memory already.
__device__ __forceinline__ void add_plain_rows(const Sums& sums, const SoftmaxTile& softmax, int m,
                                               const Operands& from, const Sequences& of,
                                               const Share& share, const Logits& logits,
                                               Addresses at, int warp) {
  each_not_finite(sums, softmax, [&](int i, const SoftmaxPart& part) {
    const int row = m * 16 + i, query = query_of(row);
    if (query >= share.sequence.queries) return;
    PlainRow plain(part.largest);
    for (int key = share.begin + warp * kKeys; key < share.end; key += kTile) {
      plain.add(from, of, share.sequence, query, head_of(row, share.kv_head), logits, key,
                min(key + kKeys, share.end));
    }
    plain.each([&](int column, float x) {
      store_number(at.sums(warp, row) + column * 4, __float_as_int(x));
    });
  });
}

// What several parts of a row are together.
struct Whole {
  float largest = hidden_score(), sum = 0;
  float4 values = {0, 0, 0, 0};

  __device__ __forceinline__ void add(const SoftmaxPart& part, const float4& x) {
    const float next = larger(largest, part.largest);
    if (next == hidden_score()) return;
    const float old = exp2_fast(largest - next), scale = exp2_fast(part.largest - next);
    largest = next;
    sum = sum * old + part.sum * scale;
    values = {values.x * old + x.x * scale, values.y * old + x.y * scale,
              values.z * old + x.z * scale, values.w * old + x.w * scale};
  }
};

struct Results {
  out_t* o;
  float* lse_out;
  const float* sinks;
  int q_tokens, ldo;
  float value_scale;

  // Stores 4 columns of a row.
  __device__ __forceinline__ void store(const Share& share, int row, int group, Whole whole) const {
    const Sequence& sequence = share.sequence;
    if (query_of(row) >= sequence.queries) return;
    const int head = head_of(row, share.kv_head);
    if constexpr (sink == sink_head) whole.add({sinks[head] * kLog2E, 1}, {0, 0, 0, 0});
    const float inverse = whole.sum == 0 ? 0.0f : value_scale / whole.sum;
    uint2 words = {pack_pair<out_t>(whole.values.x * inverse, whole.values.y * inverse),
                   pack_pair<out_t>(whole.values.z * inverse, whole.values.w * inverse)};
    *reinterpret_cast<uint2*>(
        o + group * 4 + query_place(sequence, query_of(row), head, q_tokens, ldo, head_dim_v)) =
        words;
    if (lse != lse_none && group == 0) {
      const float log2_sum = whole.sum == 0 ? hidden_score() : whole.largest + __log2f(whole.sum);
      lse_out[lse_place(sequence, query_of(row), head, q_tokens)] =
          lse == lse_base2 ? log2_sum : log2_sum * kLn2;
    }
  }
};

// Sums of heads that several blocks share, what is known of them, and how many have come.
struct Workspace {
  int* counters;
  float4* sums;
  SoftmaxPart* parts;
};

// Run by the whole block: loads a share, multiplies it, and adds its sums to those of the head's
// other shares. Logits and results do not have the scales of fp8 tensors yet.
__device__ __forceinline__ void attend(TilePipeline& pipeline, const TensorMap& map_k,
                                       const TensorMap& map_v, const Share& share,
                                       const Operands& operands, const Sequences& of,
                                       const Scales& scales, const Logits& unscaled,
                                       Results results, const Workspace& workspace, Addresses at,
                                       int warp) {
  if (warp == WARPS) {
    produce(pipeline, map_k, map_v, of, share, at);
    return;
  }
  const int rows = kGroup * share.sequence.queries;
  Sums sums[M_TILES];
  Logits logits = unscaled;
  logits.scale *= scales.of_products(share.sequence.number, share.kv_head);
  SoftmaxTile softmax[M_TILES];
#pragma unroll
  for (int m = 0; m < M_TILES; ++m) {
#pragma unroll
    for (float& x : sums[m]) x = 0;
  }
  {
    unsigned queries[M_TILES][kStepsD][4];
    load_queries(queries, operands.q, share, of.q_tokens, operands.ldq, rows);
    Logits of_fitted = logits;
    if constexpr (kNarrow && dtype == dtype_bf16) of_fitted.scale *= fit_queries(queries);
#pragma unroll
    for (SoftmaxTile& of_tile : softmax) of_tile = SoftmaxTile(of_fitted.unit());
    consume(pipeline, sums, softmax, queries, share, of_fitted, at, warp);
  }
  // All stages have been read, and what was loaded has landed.
  named_barrier_sync(1, kConsumers);
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int m = 0; m < M_TILES; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = m * 16 + lane / 4 + half * 8;
      if constexpr (kNarrow) {
#pragma unroll
        for (int column = 0; column < kColumns; column += 16) {
          float x[4];
          narrow_columns(x, sums[m], column, half);
          store_quad(at.sums(warp, row) + (column + lane % 4 * 4) * 4, {x[0], x[1], x[2], x[3]});
        }
      } else {
#pragma unroll
        for (int i = 0; i < kColumns / 2; i += 4) {
          store_shared_pair(at.sums(warp, row) + (accumulator_column() + register_column(i)) * 4,
                            __float_as_uint(sums[m][i + half * 2]),
                            __float_as_uint(sums[m][i + half * 2 + 1]));
        }
      }
      const SoftmaxPart part = softmax[m].part(half);
      if (lane % 4 == 0) {
        store_shared_pair(at.parts() + (warp * kRows + row) * sizeof(SoftmaxPart),
                          __float_as_uint(part.largest), __float_as_uint(part.sum));
      }
    }
    // Queries of one position see the same keys.
    if (mask != mask_none && share.sequence.queries > 1) {
      __syncwarp();
      add_plain_rows(sums[m], softmax[m], m, operands, of, share, logits, at, warp);
    }
  }
  named_barrier_sync(1, kConsumers);
  results.value_scale = scales.of_values(share.sequence.number, share.kv_head);
  const bool alone = share.splits <= CLUSTER;  // the cluster has all keys that are seen
  // Gives the sums of a row's 4 columns to whoever is next: the result, or the workspace.
  const auto hand_on = [&](int row, int group, const Whole& whole) {
    if (alone) {
      results.store(share, row, group, whole);
    } else {
      const long long line = share.entry(share.split / CLUSTER) * kRows + row;
      workspace.sums[line * kGroups + group] = whole.values;
      if (group == 0) workspace.parts[line] = {whole.largest, whole.sum};
    }
  };
  for (int i = threadIdx.x; i < rows * kGroups; i += kConsumers) {
    const int row = i / kGroups, group = i % kGroups;
    Whole whole;
#pragma unroll
    for (int from = 0; from < WARPS; ++from) {
      const float2 part =
          load_shared_pair<float>(at.parts() + (from * kRows + row) * sizeof(SoftmaxPart));
      whole.add({part.x, part.y}, load_quad(at.sums(from, row) + group * 16));
    }
    if constexpr (CLUSTER == 1) {
      hand_on(row, group, whole);
    } else {
      store_quad(at.sums(0, row) + group * 16, whole.values);
      if (group == 0) {
        store_shared_pair(at.block_parts() + row * sizeof(SoftmaxPart),
                          __float_as_uint(whole.largest), __float_as_uint(whole.sum));
      }
    }
  }
  if constexpr (CLUSTER > 1) {
    cluster_arrive();
    cluster_wait();
    // Each block adds up some of the rows' columns over all blocks.
    for (int i = cluster_rank() * kConsumers + threadIdx.x; i < rows * kGroups;
         i += CLUSTER * kConsumers) {
      const int row = i / kGroups, group = i % kGroups;
      Whole whole;
#pragma unroll
      for (int from = 0; from < CLUSTER; ++from) {
        const float2 part =
            cluster_load_pair(cluster_address(at.block_parts() + row * sizeof(SoftmaxPart), from));
        whole.add({part.x, part.y},
                  cluster_load_quad(cluster_address(at.sums(0, row) + group * 16, from)));
      }
      hand_on(row, group, whole);
    }
    cluster_arrive();  // before this block's memory is gone
    cluster_wait();
  }
  if (alone) return;
  __threadfence();
  named_barrier_sync(1, kConsumers);
  if (threadIdx.x == 0) {
    const int blocks = (share.splits + CLUSTER - 1) / CLUSTER * CLUSTER;
    int* const counter = workspace.counters + share.head();
    const bool last = atomicAdd(counter, 1) == blocks - 1;
    if (last) *counter = 0;
    __threadfence();
    store_number(at.last(), last);
  }
  named_barrier_sync(1, kConsumers);
  if (!load_number(at.last())) return;
  for (int i = threadIdx.x; i < rows * kGroups; i += kConsumers) {
    const int row = i / kGroups, group = i % kGroups;
    Whole whole;
#pragma unroll 4
    for (int cluster = 0; cluster * CLUSTER < share.splits; ++cluster) {
      const long long line = share.entry(cluster) * kRows + row;
      const float2 part = __ldcg(reinterpret_cast<const float2*>(workspace.parts + line));
      whole.add({part.x, part.y}, __ldcg(workspace.sums + line * kGroups + group));
    }
    results.store(share, row, group, whole);
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    attention_stream(const dtype_t* __restrict__ q, const kv_t* __restrict__ k,
                     const kv_t* __restrict__ v, const __grid_constant__ TensorMap map_k,
                     const __grid_constant__ TensorMap map_v, const int* __restrict__ q_offsets,
                     const int* __restrict__ kv_offsets, const int* __restrict__ kv_lengths,
                     const int* __restrict__ page_table, const float* __restrict__ sinks,
                     const float* __restrict__ slopes, const float* __restrict__ q_descale,
                     const float* __restrict__ k_descale, const float* __restrict__ v_descale,
                     const ScheduleEntry* __restrict__ work, out_t* __restrict__ o,
                     float* __restrict__ lse_out, int* counters, float4* partial_sums,
                     SoftmaxPart* partials, int batch, int q_len, int kv_len, int q_tokens,
                     int kv_tokens, int pages, int table_columns, int ldq, int ldk, int ldv,
                     int ldo, int splits, int split_keys, float scale, float cap, float q_scale,
                     float k_scale, float v_scale) {
  extern __shared__ unsigned char memory[];
  const Addresses at{(static_cast<unsigned>(__cvta_generic_to_shared(memory)) + 1023) & ~1023u};
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
  const Sequences of{q_offsets, kv_offsets, kv_lengths, page_table, batch,        q_len,
                     kv_len,    q_tokens,   kv_tokens,  pages,      table_columns};
  if (warp == WARPS && elect_one()) {
    tma_prefetch(map_k);
    tma_prefetch(map_v);
    TilePipeline(at.barriers()).init(WARPS);
    mbarrier_init_fence();
  }
  __syncthreads();
  release_next_kernel();
  await_previous_kernel();
  const Operands operands{q, k, v, ldq, ldk, ldv};
  const Scales scales{q_descale, k_descale, v_descale, q_scale, k_scale, v_scale};
  const Logits logits{scale, cap, slopes};
  const Results results{o, lse_out, sinks, q_tokens, ldo, 1};
  const Workspace workspace{counters, partial_sums, partials};
  TilePipeline pipeline(at.barriers());
  if constexpr (schedule == schedule_none) {
    const Share share(of, splits, split_keys);
    if (share.split / CLUSTER * CLUSTER >= share.splits) return;  // all of the cluster
    attend(pipeline, map_k, map_v, share, operands, of, scales, logits, results, workspace, at,
           warp);
  } else {
    const int slot = blockIdx.x / kv_heads, kv_head = blockIdx.x % kv_heads;
    const ScheduleEntry entry = work[slot];
    if (entry.first < 0) return;
#pragma unroll 1
    for (int number = entry.first; number <= entry.last; ++number) {
      const Share share(of, entry, slot, number, kv_head);
      if (share.sequence.queries == 0) continue;
      attend(pipeline, map_k, map_v, share, operands, of, scales, logits, results, workspace, at,
             warp);
      // The next keys go where sums were.
      tma_store_fence();
      __syncthreads();
    }
  }
}
