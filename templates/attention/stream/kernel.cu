// Attention for few queries a sequence, such as one new token (Hopper): keys and values are read
// once, as fast as the memory allows.
//
// A block takes SPLIT keys of one head of k and v, and all queries that meet this head: the query
// heads that share it times the queries of the sequence, ROWS rows in M_TILES tiles of 16. One warp
// loads tiles of keys and values by TMA into a ring. Every other warp takes 16 keys of each tile
// and works on its own: scores by mma.sync, their softmax in registers, and products with the
// values. fp8 keys and values become fp16 between shared memory and products (narrow.cuh), and
// queries beside them too. At the end the warps of a block add up their accumulators, each relative
// to its largest score.
//
// If a head's keys are split, the blocks of a cluster add up such sums in one another's shared
// memory. If there are more splits, clusters write their sums to a workspace, and the last cluster
// of a head adds them up (results.cuh).
//
// With a work list a block takes a slot of it for one head of k and v: pieces of one sequence after
// another, each as if it were the SPLIT keys of a block.

#include "append.cuh"
#include "layout.cuh"
#include "results.cuh"
#include "share.cuh"
#include <kernwright/attention/bias.cuh>
#include <kernwright/attention/boxes.cuh>
#include <kernwright/attention/narrow.cuh>
#include <kernwright/attention/plain_row.cuh>
#include <kernwright/attention/scales.cuh>
#include <kernwright/attention/schedule.cuh>
#include <kernwright/attention/scores.cuh>
#include <kernwright/attention/sequences.cuh>
#include <kernwright/attention/token_rows.cuh>
#include <kernwright/config.cuh>
#include <kernwright/math/types.cuh>
#include <kernwright/math/vector.cuh>
#include <kernwright/ptx/ldmatrix.cuh>
#include <kernwright/ptx/mbarrier.cuh>
#include <kernwright/ptx/mma.cuh>
#include <kernwright/ptx/programmatic.cuh>
#include <kernwright/ptx/stmatrix.cuh>
#include <kernwright/ptx/tma.cuh>
#include <kernwright/ptx/warp_roles.cuh>
#include <kernwright/tile/frame.cuh>
#include <kernwright/tile/pipeline.cuh>
#include <kernwright/tile/softmax_tile.cuh>

namespace {

using namespace kernwright;
using namespace kernwright::config;

using operand_t = p_t;
using Scores = float[kKeys / 2];
using Acc = float[kColumns / 2];
using Queries = unsigned[M_TILES][kStepsD][4];
using Bias = BiasOfScores<kKeys / 2>[M_TILES];

// Keys and values in memory.
struct Tokens {
  const TensorMap &map_k, &map_v;
  HeadRows k, v;
};

// Loads a tile to the ring's next stage. Run by one warp.
__device__ __forceinline__ void load_tile(const TilePipeline& pipeline, const Tokens& tokens,
                                          const Sequences& of, const Sequence& sequence, int key,
                                          int kv_head, Addresses at) {
  if constexpr (kGathered) {
    const TokenRows<kTile> rows(of, sequence, key, kv_head);
    pipeline.producer_wait();
    rows.copy<kBoxesD, kRowD>(at.k(pipeline.stage()), tokens.k);
    rows.copy<kBoxesDv, kRowDv>(at.v(pipeline.stage()), tokens.v);
    mbarrier_arrive_copied(pipeline.full());
  } else {
    pipeline.warp_acquire(kStageBytes);
    load_tokens<kBoxesD, kTile, kRowD>(at.k(pipeline.stage()), tokens.map_k, pipeline.full(), of,
                                       sequence, key, kv_head);
    load_tokens<kBoxesDv, kTile, kRowDv>(at.v(pipeline.stage()), tokens.map_v, pipeline.full(), of,
                                         sequence, key, kv_head);
  }
}

// Prefetches the table entries of a share into the L2. Copies of a tile wait for its entries, and
// those of small pages are too many for a tile's lookup to bring the next one's along.
__device__ __forceinline__ void prefetch_pages(const Sequences& of, const Share& share) {
  if constexpr (!kGathered) return;
  constexpr int kOfLine = 128 / sizeof(int);
  const int* const entries = of.pages_of(share.sequence.number);
  const int end = (share.end + page - 1) / page;
  for (int i = share.begin / page + threadIdx.x % 32 * kOfLine; i < end; i += 32 * kOfLine) {
    prefetch_line(entries + i);
  }
}

// Loads the tiles of a share that were not loaded ahead. At least `passed` tiles pass the ring: if
// a share has fewer, the last of them are empty.
__device__ __forceinline__ void produce(TilePipeline& pipeline, const Tokens& tokens,
                                        const Sequences& of, const Share& share, int loaded,
                                        int passed, Addresses at) {
  const int tiles = share.tiles();
  if (loaded == 0) prefetch_pages(of, share);
#pragma unroll 1
  for (int i = 0; i < (kReadsAhead ? max(tiles, passed) : tiles); ++i) {
    if (!kReadsAhead || (i >= loaded && i < tiles)) {
      load_tile(pipeline, tokens, of, share.sequence, share.begin + i * kTile, share.kv_head, at);
    } else if (i >= loaded && threadIdx.x % 32 < kLoaders) {
      mbarrier_arrive(pipeline.full());
    }
    pipeline.advance();
  }
}

// Returns the number of keys of a sequence. Before the wait it may be out of date; so it is not
// kept in the L1.
__device__ __forceinline__ int keys_of(const Sequences& of, int sequence) {
  int keys;
  asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(keys) : "l"(of.kv_lengths + sequence));
  // Lanes may have read different numbers.
  return max(0, min(__shfl_sync(~0u, keys, 0), of.kv_len));
}

// Loads the first tiles of a share before the previous kernel ends, which changes none of their
// keys except the new one. Returns how many. The share has the likely keys, which only decide which
// tiles are worth loading: pages behind them are looked up too.
__device__ __forceinline__ int produce_ahead(TilePipeline pipeline, const Tokens& tokens,
                                             const Sequences& of, const Share& share, int most,
                                             Addresses at) {
  const Sequence sequence(share.sequence.number, 1, of.kv_len, 0);
  const int tiles = min(most, share.tiles());
  prefetch_pages(of, share);
#pragma unroll 1
  for (int i = 0; i < tiles; ++i) {
    load_tile(pipeline, tokens, of, sequence, share.begin + i * kTile, share.kv_head, at);
    pipeline.advance();
  }
  return tiles;
}

// Loads the queries as operand a of mma.sync: for step s, rows lane / 4 and 8 on, elements 2 *
// (lane % 4) and 8 on, or the elements that meet fp8 keys. Rows that do not exist, and elements
// behind the head, are zeros.
__device__ __forceinline__ void load_queries(Queries& a, const dtype_t* __restrict__ q,
                                             const Share& share, int q_tokens, int ldq, int rows) {
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
              step * 16 + (kFp8 ? fp8_element(lane % 4, part) : part * 8 + lane % 4 * 2);
          const bool is_there = is_row && (head_dim % 16 == 0 || element < head_dim);
          a[m][step][part * 2 + half] = is_there ? load_pair<operand_t>(from + element) : 0u;
        }
      }
    }
  }
}

// Loads the queries of a new token, from shared memory. Rows that do not exist are like the last.
__device__ __forceinline__ void load_new_queries(Queries& a, Addresses at) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int m = 0; m < M_TILES; ++m) {
    const unsigned row = at.new_row(min(m * 16 + lane % 16, kGroup - 1));
#pragma unroll
    for (int step = 0; step < kStepsD; ++step) {
      ldmatrix_x4(a[m][step], row + (step * 2 + lane / 16) * 16);
    }
  }
}

// Makes bf16 queries fp16, which has more bits of fraction and fewer of exponent: they are
// multiplied by the power of two that takes the largest of them to 2^14, and all that are not
// smaller by 2^-28 are exact. Returns the factor by which the products must be multiplied.
__device__ __forceinline__ float fit_queries(Queries& a) {
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

// Overwrites with zeros the rows of a warp's values that no query sees.
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

// Loads the bias of the warp's keys from `key` on.
__device__ __forceinline__ void load_bias(Bias& bias, const BiasTensor& tensor, const Share& share,
                                          int rows, int key) {
#pragma unroll
  for (int m = 0; m < M_TILES; ++m) {
    const auto row_of = [&](int half) {
      const int row = min(m * 16 + accumulator_row() + half * 8, rows - 1);
      return tensor.row(share.sequence.number, head_of(row, share.kv_head), query_of(row));
    };
    bias[m].load(tensor, {row_of(0), row_of(1)}, key);
  }
}

// Multiplies a warp's keys of all tiles. The bias of a tile is loaded a tile ahead.
__device__ __forceinline__ void consume(TilePipeline& pipeline, Acc (&acc)[M_TILES],
                                        SoftmaxTile (&softmax)[M_TILES], const Queries& q,
                                        const Share& share, int rows, const Logits& logits,
                                        int passed, Addresses at, int warp) {
  const int lane = threadIdx.x % 32;
  const Sequence& sequence = share.sequence;
  const int first_key = warp * kKeys;
  const int first_seen = sequence.first_key(0);
  const int tiles = kReadsAhead ? max(share.tiles(), passed) : share.tiles();
  Bias next_bias, bias;
  if constexpr (biased) {
    if (tiles > 0) load_bias(next_bias, logits.tensor, share, rows, share.begin + first_key);
  }
#pragma unroll 1
  for (int i = 0; i < tiles; ++i) {
    const int key = share.begin + i * kTile + first_key;
    if constexpr (biased) {
#pragma unroll
      for (int m = 0; m < M_TILES; ++m) bias[m] = next_bias[m];
      if (i + 1 < tiles) load_bias(next_bias, logits.tensor, share, rows, key + kTile);
    }
    pipeline.consumer_wait();
    const unsigned keys = at.k(pipeline.stage()), values = at.v(pipeline.stage());
    if (key < share.end) {
      if constexpr (kAppends) {
        NewToken::put(keys, values, sequence.keys - 1 - (key - first_key), first_key, at);
      }
      Scores s[M_TILES];
      clear(s);
      unsigned fp8_keys[(kStepsD + 1) / 2][4];
      if constexpr (kFp8) {
#pragma unroll
        for (int step = 0; step < kStepsD; step += 2) {
          ldmatrix_x4(fp8_keys[step / 2], key_address(keys, first_key, step));
        }
      }
#pragma unroll
      for (int step = 0; step < kStepsD; ++step) {
        unsigned b[4];
        if constexpr (kFp8) {
          const auto& words = fp8_keys[step / 2];
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
        if constexpr (biased) bias[m].apply(s[m]);
        if (!whole) apply_mask(s[m], positions, share.end, key);
        RowFactors factor;
        softmax[m].exponentiate<0, kAdds>(s[m], factor);
        if (i > 0 && __any_sync(~0u, factor[0] != 1 || factor[1] != 1)) rescale(acc[m], factor);
#pragma unroll
        for (int j = 0; j < 4; ++j) p[m][j] = pack_pair<operand_t>(s[m][2 * j], s[m][2 * j + 1]);
      }
      if (key + kKeys > sequence.keys || key < first_seen) {
        clear_unseen(values, first_key, first_seen - key, sequence.keys - key);
      }
      unsigned fp8[4];
#pragma unroll
      for (int column = 0; column < kColumns; column += 16) {
        unsigned b[4];
        if constexpr (kFp8) {
          if (column % 32 == 0) {
            ldmatrix_transposed_x4(fp8, value_address(values, first_key, column));
          }
          widen_values(b, fp8[column / 16 % 2 * 2], fp8[column / 16 % 2 * 2 + 1]);
        } else {
          ldmatrix_transposed_x4(b, value_address(values, first_key, column));
        }
#pragma unroll
        for (int m = 0; m < M_TILES; ++m) {
          mma_m16n8<operand_t>(reinterpret_cast<float(&)[4]>(acc[m][column / 2]), p[m], b[0], b[1]);
          mma_m16n8<operand_t>(reinterpret_cast<float(&)[4]>(acc[m][column / 2 + 4]), p[m], b[2],
                               b[3]);
        }
      }
    }
    if (schedule == schedule_given || i + STAGES < tiles) {  // the stage is loaded again
      tma_store_fence();
      __syncwarp();
      pipeline.consumer_release(pipeline.stage());
    }
    pipeline.advance();
  }
}

// Recomputes the warp's rows whose accumulators a masked NaN or infinity may have reached. A row
// with a score of NaN is NaN. The sums of tile `m` are in shared memory already.
__device__ __forceinline__ void add_slow_path_rows(const Acc& acc, const SoftmaxTile& softmax,
                                                   int m, const Operands& from, const Sequences& of,
                                                   const Share& share, const Logits& logits,
                                                   Addresses at, int warp) {
  each_not_finite(acc, softmax, [&](int i, const SoftmaxPart& part) {
    const int row = m * 16 + i, query = query_of(row);
    if (query >= share.sequence.queries) return;
    SlowPathRow slow(part.largest);
    for (int key = share.begin + warp * kKeys; key < share.end; key += kTile) {
      slow.add(from, of, share.sequence, query, head_of(row, share.kv_head), logits, key,
               min(key + kKeys, share.end));
    }
    slow.each([&](int column, float x) {
      store_number(at.sums(warp, row) + column * 4, __float_as_int(x));
    });
  });
}

// Stores the sums and the parts of the warp's rows of tile `m` in shared memory.
__device__ __forceinline__ void store_sums(const Acc& acc, const SoftmaxTile& softmax, int m,
                                           int rows, Addresses at, int warp) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (m * 16 + half * 8 >= rows) continue;
    const int row = m * 16 + lane / 4 + half * 8;
    const SoftmaxPart part = softmax.part(half);
    if (row >= rows) continue;
    if constexpr (kFp8) {
#pragma unroll
      for (int column = 0; column < kColumns; column += 16) {
        float x[4];
        fp8_columns(x, acc, column, half);
        store_quad(at.sums(warp, row) + (column + lane % 4 * 4) * 4, {x[0], x[1], x[2], x[3]});
      }
    } else {
#pragma unroll
      for (int i = 0; i < kColumns / 2; i += 4) {
        store_shared_pair(at.sums(warp, row) + (accumulator_column() + register_column(i)) * 4,
                          __float_as_uint(acc[i + half * 2]),
                          __float_as_uint(acc[i + half * 2 + 1]));
      }
    }
    if (lane % 4 == 0) {
      store_shared_pair(at.part(warp, row), __float_as_uint(part.largest),
                        __float_as_uint(part.sum));
    }
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    attention_stream(KW_PARAMETERS(attention_stream)) {
  extern __shared__ unsigned char memory[];
  const Addresses at{aligned_shared(memory)};
  const int warp = warp_number();
  const Sequences of{q_offsets, kv_offsets, kv_lengths,   page_table, batch,
                     q_len,     kv_len,     Q_TOKENS,     KV_TOKENS,  pages,
                     ld_table,  table_rows, page_offsets, page_list};
  if (warp == WARPS && elect_one()) {
    tma_prefetch(map_k);
    tma_prefetch(map_v);
    TilePipeline(at.barriers()).init(WARPS, kLoaders);
    if constexpr (CLUSTER > 1) mbarrier_init(at.landed(), 1);
    mbarrier_init_fence();
  }
  // Weights are not in the L2 yet, and the previous kernel does not change them.
  if constexpr (kNormalises) prefetch_weights(q_norm, k_norm);
  __syncthreads();
  if constexpr (CLUSTER > 1) cluster_arrive_relaxed();
  release_next_kernel();
  TilePipeline pipeline(at.barriers());
  // Tiles that may be loaded ahead, and tiles that are.
  const int passed = kReadsAhead && ahead ? min(STAGES, ceil_div(SPLIT, kTile)) : 0;
  int loaded = 0;
  const NewTokens new_tokens{k,      v,    q,   k_new, v_new,   q_norm,  k_norm,
                             cosine, sine, ldk, ldv,   ldk_new, ldv_new, eps};
  const int number = blockIdx.x / SPLITS / kv_heads;
  int keys = 0;
  NewToken token;
  const Tokens tokens{map_k, map_v, {k, ldk, head_dim}, {v, ldv, head_dim_v}};
  const Operands operands{q, k, v, ldq, ldk, ldv};
  if constexpr (kAppends) {
    if (passed == 0) await_previous_kernel();
    keys = keys_of(of, number);
    if (warp == WARPS) {
      const Share share(Sequence(number, 1, keys, 0), SPLITS, SPLIT);
      if (passed > 0) loaded = produce_ahead(pipeline, tokens, of, share, passed, at);
      await_previous_kernel();
      keys = keys_of(of, number);
    } else {
      // Runs once, unless previous kernels have counted more keys meanwhile.
      int expected;
#pragma unroll 1
      do {
        expected = keys;
        const Share share(Sequence(number, 1, keys, 0), SPLITS, SPLIT);
        token.expect(new_tokens, of, share);
        await_previous_kernel();
        token.load(new_tokens, share, ldq);
        keys = keys_of(of, number);
      } while (keys != expected);
    }
  } else {
    await_previous_kernel();
  }
  const Scales scales{q_descale, k_descale, v_descale, q_scale, k_scale, v_scale};
  const Logits logits =
      Logits::of(scale, cap, slopes, seen, bias, kv_len, ldbias_batch, ldbias_head, ldbias);
  const Results results{o, lse, sinks, Q_TOKENS, ldo, 1};
  const Sums::Workspace workspace{counters, lines};
  // Run by the whole block. Loads a share, multiplies it, and adds its sums to the sums of the
  // head's other shares.
  const auto attend = [&](const Share& share, int loaded, int passed) {
    if (warp == WARPS) {
      produce(pipeline, tokens, of, share, loaded, passed, at);
      return;
    }
    const int rows = kAppends ? kGroup : kGroup * share.sequence.queries;
    Queries queries;
    if constexpr (kAppends) {
      token.append(new_tokens, at);
      named_barrier_sync(1, kConsumers);
      load_new_queries(queries, at);
    } else {
      load_queries(queries, q, share, Q_TOKENS, ldq, rows);
    }
    Acc acc[M_TILES];
    Logits of_share = logits;
    of_share.scale *= scales.of_products(share.sequence.number, share.kv_head);
    SoftmaxTile softmax[M_TILES];
    clear(acc);
    Logits of_fitted = of_share;
    if constexpr (kFp8 && dtype == dtype_bf16) of_fitted.scale *= fit_queries(queries);
#pragma unroll
    for (SoftmaxTile& of_tile : softmax) of_tile = SoftmaxTile(of_fitted.unit());
    consume(pipeline, acc, softmax, queries, share, rows, of_fitted, passed, at, warp);
    named_barrier_sync(1, kConsumers);  // all stages have been read, and all loads have landed
#pragma unroll
    for (int m = 0; m < M_TILES; ++m) {
      store_sums(acc[m], softmax[m], m, rows, at, warp);
      // Queries of one position see the same keys, unless a bias says which.
      if (kHides || (mask != mask_none && !kAppends && share.sequence.queries > 1)) {
        __syncwarp();
        add_slow_path_rows(acc[m], softmax[m], m, operands, of, share, of_share, at, warp);
      }
    }
    __syncwarp();
    named_barrier_sync(1, kConsumers);
    Results of_values = results;
    of_values.value_scale = scales.of_values(share.sequence.number, share.kv_head);
    Sums::add_up(share, rows, of_values, workspace, at);
  };
  if constexpr (schedule == schedule_none) {
    const Share share(kAppends ? Sequence(number, 1, keys, 0) : Sequence(number, of), SPLITS,
                      SPLIT);
    if (share.split / CLUSTER * CLUSTER >= share.splits) {  // all of the cluster
      for (; loaded > 0; --loaded) {
        pipeline.consumer_wait();  // loads must not land in another block's memory
        pipeline.advance();
      }
      return;
    }
    attend(share, loaded, passed);
  } else {
    const int slot = blockIdx.x / kv_heads, kv_head = blockIdx.x % kv_heads;
    const ScheduleEntry entry = work[slot];
    if (entry.first < 0) return;
#pragma unroll 1
    for (int number = entry.first; number <= entry.last; ++number) {
      const Share share(of, entry, slot, number, kv_head);
      if (share.sequence.queries == 0) continue;
      attend(share, 0, 0);
      // The next keys overwrite the sums.
      tma_store_fence();
      __syncthreads();
    }
  }
}
