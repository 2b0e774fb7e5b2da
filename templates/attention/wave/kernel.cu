// Attention for many queries of a sequence (Hopper): o = softmax(scale * q * k^T) * v without ever
// writing the scores.
//
// A block takes tiles of BM rows, one after the other, by a counter that all blocks share. Two
// warps load by TMA, from the last key to the first, into a ring each: one a tile's queries, and
// its keys in tiles of BN, and one its values. WGS warpgroups multiply by wgmma, 64 rows each:
// scores in registers, their softmax there, and probabilities rounded to 16 bits in registers as
// the operand of the second product.
//
//   OVERLAP    1: a warpgroup issues the products for the next tile's scores and with this one's
//              probabilities together; 2: and exponentiates while the second runs; 0: it does one
//              thing after the other and needs registers for less
//   PINGPONG   warpgroups take turns, so that one exponentiates while the other multiplies
//   QSTAGES    2: the next tile's queries are loaded while this one is worked on
//   PACK       rows are queries of all heads that share keys, not of one
//   SLACK      accumulators are rescaled only if a row has a probability that would be above
//              2^SLACK
// Two more warps load a bias, a piece for each warpgroup and tile of keys.
//
// Only key tiles that the mask cuts for some query of the warpgroup are masked element by element.
// Values outside every query's range may be NaN, and 0 * NaN is NaN, so they are overwritten by
// zeros in shared memory. A value that some queries of a tile see and others do not is hardly ever
// NaN or infinite: rows with such sums are computed again without tiles, on the slow path.

#include "bias.cuh"
#include "layout.cuh"
#include <kernwright/attention/scores.cuh>
#include <kernwright/attention/tile_loop.cuh>
#include <kernwright/attention/token_rows.cuh>
#include <kernwright/math/types.cuh>
#include <kernwright/ptx/mbarrier.cuh>
#include <kernwright/ptx/programmatic.cuh>
#include <kernwright/ptx/stmatrix.cuh>
#include <kernwright/ptx/tma.cuh>
#include <kernwright/ptx/warp_roles.cuh>
#include <kernwright/tile/frame.cuh>
#include <kernwright/tile/softmax_tile.cuh>

namespace {

// Publishes a tile for the warps that multiply. Run by one thread.
__device__ __forceinline__ void publish(const WorkQueue& work, const Tile& tile) {
  const Sequence& sequence = tile.sequence;
  work.publish({tile.head, tile.row, tile.first, tile.last, sequence.number, sequence.queries,
                sequence.keys, sequence.q_first});
}

// Returns the next tile that was published. Run by whole warps.
__device__ __forceinline__ Tile take(WorkQueue& work, const Sequences& of) {
  return work.take([&](const WorkQueue::Tile& words) {
    // The compiler does not know by itself that the number is the same in all lanes.
    const auto load = [&](int i) { return __shfl_sync(~0u, words[i], 0); };
    const int number = load(4);
    return Tile{lengths == lengths_full ? Sequence(number, of.q_len, of.kv_len, 0)
                                        : Sequence(number, load(5), load(6), load(7)),
                load(0), load(1), load(2), load(3)};
  });
}

// Loads the tile of `Boxes` boxes along the head from `key` on to the ring's next stage, by TMA or
// row by row. Run by one warp.
template <int Boxes>
__device__ __forceinline__ void load_tile(const TilePipeline& ring, unsigned to,
                                          const TensorMap& map, const Sequences& of,
                                          const Sequence& sequence, int key, int kv_head) {
  const TokenBoxes<Boxes, BN> boxes(of, sequence, key, kv_head);
  ring.warp_acquire(Boxes * BN * kSwizzleBytes);
  boxes.load(to, map, ring.full());
}
template <int Boxes>
__device__ __forceinline__ void load_tile(const TilePipeline& ring, unsigned to,
                                          const HeadRows& from, const Sequences& of,
                                          const Sequence& sequence, int key, int kv_head) {
  const TokenRows<BN> rows(of, sequence, key, kv_head);
  ring.producer_wait();
  rows.copy<Boxes>(to, from);
  mbarrier_arrive_copied(ring.full());
}

// Finds the tiles of this block, and loads their queries and keys. Run by one warp.
template <typename Source>
__device__ __forceinline__ void produce_keys(const TensorMap& map_q, const Source& source,
                                             const Sequences& of, Addresses at, int tiles,
                                             int section, int* counters) {
  const int lane = threadIdx.x % 32;
  TilePipeline keys(at.key_barriers());
  QueryPipeline queries(at.query_barriers());
  WorkQueue work(at.work());
  int number = blockIdx.x;
  while (number < tiles) {
    const Tile tile = tile_at<kHeads>(number, section, of);
    if (lane == 0) publish(work, tile);
    work.advance();
    if (lane == 0) number = WorkQueue::next_number(counters);
    const auto load_keys = [&](int j) {
      load_tile<kBoxesD>(keys, at.k(keys.stage()), source, of, tile.sequence, j * BN,
                         tile.kv_head());
      keys.advance();
    };
    if (tile.sees()) {
      load_keys(tile.last - 1);
      queries.warp_acquire(kQueryBytes);
      load_queries(at.q(queries.stage()), map_q, queries.full(), tile);
      queries.advance();
#pragma unroll 1
      for (int j = tile.last - 2; j >= tile.first; --j) load_keys(j);
    }
    number = __shfl_sync(~0u, number, 0);
  }
  if (lane == 0) publish(work, Tile::none());
  if (lane == 0) WorkQueue::finish(counters);
}

// Loads the values of the tiles that are published. Run by one warp.
template <typename Source>
__device__ __forceinline__ void produce_values(const Source& source, const Sequences& of,
                                               Addresses at) {
  TilePipeline values(at.value_barriers());
  WorkQueue work(at.work());
#pragma unroll 1
  for (Tile tile = take(work, of); tile.exists(); tile = take(work, of)) {
    const Sequence sequence(tile.sequence.number, of);  // with the place of its keys
#pragma unroll 1
    for (int j = tile.last - 1; j >= tile.first; --j) {
      load_tile<kBoxesDv>(values, at.v(values.stage()), source, of, sequence, j * BN,
                          tile.kv_head());
      values.advance();
    }
  }
}

// Overwrites with zeros the rows that no query of the sequence sees, in a tile of values that has
// landed. Run by a whole warpgroup; another one that does the same writes the same.
__device__ __forceinline__ void clear_unseen(unsigned values, const Tile& tile, int key,
                                             int group) {
  const int begin = tile.sequence.first_key(0) - key, end = tile.sequence.keys - key;
  if (begin <= 0 && end >= BN) return;
  for (int i = threadIdx.x % 128; i < kBoxesDv * BN * 8; i += 128) {
    const int token = i / 8 % BN;
    if (token >= begin && token < end) continue;
    store_quad(values + i * 16, {0, 0, 0, 0});
  }
  tma_store_fence();
  named_barrier_sync(5 + group, 128);
}

// Stores the warp's 16 rows of the result, rounded. Each of four lanes has a pair in every 8 of a
// row's 32 columns; they exchange pairs, so that a lane has 8 columns, which it stores as 16 bytes.
__device__ __forceinline__ void store_result(const Acc& acc, const RowFactors& inverse,
                                             int row_in_tile, const Tile& tile,
                                             dtype_t* __restrict__ o, int q_tokens, int ldo) {
  const int first_column = threadIdx.x % 4 * 8;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = row_in_tile + accumulator_row() + half * 8, query = tile.query_of(row);
    dtype_t* to =
        o + query_place(tile.sequence, query, tile.head_of(row), q_tokens, ldo, head_dim_v);
#pragma unroll
    for (int column = 0; column < kColumns; column += 32) {
      unsigned words[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int i = column / 2 + 4 * j + 2 * half;
        const bool has = i < kColumns / 2;
        words[j] = has ? pack_pair<dtype_t>(acc[i] * inverse[half], acc[i + 1] * inverse[half]) : 0;
      }
      transpose_of_quad(words);
      if (query < tile.sequence.queries && column + first_column < head_dim_v) {
        *reinterpret_cast<uint4*>(to + column + first_column) = {words[0], words[1], words[2],
                                                                 words[3]};
      }
    }
  }
  __syncwarp();
}

__device__ __forceinline__ void store_lse(const RowFactors& log2_sum, int row_in_tile,
                                          const Tile& tile, float* __restrict__ lse_out,
                                          int q_tokens) {
  if (threadIdx.x % 4 != 0) return;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = row_in_tile + accumulator_row() + half * 8, query = tile.query_of(row);
    if (query >= tile.sequence.queries) continue;
    lse_out[lse_place(tile.sequence, query, tile.head_of(row), q_tokens)] =
        lse == lse_base2 ? log2_sum[half] : log2_sum[half] * kLn2;
  }
}

// Waits for a warpgroup's turn to issue products. The barriers pair it with the next one.
__device__ __forceinline__ void take_turn(int group) {
  if constexpr (PINGPONG) named_barrier_sync(1 + group, 256);
}
__device__ __forceinline__ void give_turn(int group) {
  if constexpr (PINGPONG) named_barrier_arrive(1 + (group + 1) % WGS, 256);
}

// Multiplies the tiles of keys of one tile of queries. Run by one warpgroup.
class Worker {
 public:
  __device__ __forceinline__ Worker(Addresses at, int group)
      : at_(at),
        group_(group),
        keys_(at.key_barriers()),
        values_(at.value_barriers()),
        queries_(at.query_barriers()),
        bias_(at, group) {}

  __device__ __forceinline__ void multiply_tile(Acc& o, SoftmaxTile& softmax, const Tile& tile,
                                                const Logits& logits, int row) {
    Scores s;
    OperandP p;
    RowFactors factor;
    int key = (tile.last - 1) * BN;
    const OperandQ q(at_.q(queries_.stage()), group_ * 64);
    queries_.consumer_wait();
    await(keys_);
    take_turn(group_);
    issue_scores(s, q);
    give_turn(group_);
    await_scores<0>(s, tile, key);
    weigh(s, softmax, factor, tile, logits, row, key);
    round_operand<dtype_t>(s[0], p);
#pragma unroll 1
    for (; key > tile.first * BN; key -= BN) {
      if constexpr (OVERLAP) {
        await(keys_);
        take_turn(group_);
        issue_scores(s, q);
        await_values(tile, key);
        issue_results(o, p);
        give_turn(group_);
        await_scores<1>(s, tile, key - BN);
        weigh(s, softmax, factor, tile, logits, row, key - BN);
        if constexpr (OVERLAP == 2) end_softmax(s);
        await_results(o, p);
      } else {
        await_values(tile, key);
        issue_results(o, p);
        await(keys_);
        await_results(o, p);
        issue_scores(s, q);
        await_scores<0>(s, tile, key - BN);
        take_turn(group_);
        weigh(s, softmax, factor, tile, logits, row, key - BN);
        give_turn(group_);
      }
      if (SLACK == 0 || __any_sync(~0u, factor[0] != 1 || factor[1] != 1)) rescale(o, factor);
      round_operand<dtype_t>(s[0], p);
    }
    await_values(tile, key);
    issue_results(o, p);
    await_results(o, p);
  }

 private:
  // Waits for a stage, so that wgmma sees it.
  static __device__ __forceinline__ void await(const TilePipeline& ring) {
    ring.consumer_wait();
    // wgmma reads as TMA does, and cp.async writes as ordinary stores do. Copies end later than the
    // warp that starts them could run a fence, so their readers do.
    if constexpr (kGathered) tma_store_fence();
  }

  __device__ __forceinline__ void issue_scores(Scores& s, const OperandQ& q) const {
    wgmma_pin(s[0]);
    wgmma_fence();
    multiply<dtype_t>(s, q, 0, OperandK(at_.k(keys_.stage())), 0, kStepsD, false);
    wgmma_commit();
  }

  template <int Pending>
  __device__ __forceinline__ void await_scores(Scores& s, const Tile& tile, int key) {
    wgmma_wait<Pending>();
    wgmma_pin(s[0]);
    keys_.consumer_release(keys_.stage());
    keys_.advance();
    if (key == tile.first * BN) {
      queries_.consumer_release(queries_.stage());
      queries_.advance();
    }
  }

  __device__ __forceinline__ void await_values(const Tile& tile, int key) const {
    await(values_);
    clear_unseen(at_.v(values_.stage()), tile, key, group_);
  }

  __device__ __forceinline__ void issue_results(Acc& o, OperandP& p) const {
    pin_operand(p);
    wgmma_pin(o);
    wgmma_fence();
    multiply<dtype_t>(o, p, OperandV(at_.v(values_.stage())), 0, true);
    wgmma_commit();
  }

  // Keeps later code behind the softmax. ptxas moves a wait for products up as far as it can, past
  // all of the softmax, but not past the end of a basic block. This wait ends one, and its values
  // have arrived.
  __device__ __forceinline__ void end_softmax(Scores& s) const {
    wgmma_pin(s[0]);
    values_.consumer_wait();
  }

  __device__ __forceinline__ void await_results(Acc& o, OperandP& p) {
    wgmma_wait<0>();
    wgmma_pin(o);
    pin_operand(p);
    values_.consumer_release(values_.stage());
    values_.advance();
  }

  __device__ __forceinline__ void weigh(Scores& s, SoftmaxTile& softmax, RowFactors& factor,
                                        const Tile& tile, const Logits& logits, int row, int key) {
    const int shift = tile.sequence.shift();
    const int positions[2] = {tile.query_of(row) + shift, tile.query_of(row + 8) + shift};
    const int head[2] = {tile.head_of(row), tile.head_of(row + 8)};
    make_scores(s[0], logits, positions, head, key);
    if constexpr (biased) bias_.apply(s[0]);
    // If heads are apart, the warpgroup may have all queries of the tile.
    const int first = tile.query_of(Tile::kHeadsInside ? group_ * 64 : 0);
    const int last = tile.query_of(Tile::kHeadsInside ? group_ * 64 + 63 : BM - 1);
    if (needs_mask(tile.sequence, first, last, key)) {
      apply_mask(s[0], positions, tile.sequence.keys, key);
    }
    softmax.exponentiate<SLACK, kAdds>(s[0], factor);
  }

  Addresses at_;
  int group_;
  TilePipeline keys_, values_;
  QueryPipeline queries_;
  BiasReader bias_;
};

// Run by one warpgroup.
__device__ __forceinline__ void consume(const Operands& from, const Sequences& of,
                                        const Logits& logits, Addresses at, int group,
                                        const float* __restrict__ sinks, dtype_t* __restrict__ o,
                                        float* __restrict__ lse_out, int ldo) {
  Worker worker(at, group);
  WorkQueue work(at.work());
  const int row_in_tile = group * 64 + warp_in_group() * 16;
  if (group == WGS - 1) give_turn(group);  // the first may begin
#pragma unroll 1
  for (Tile tile = take(work, of); tile.exists(); tile = take(work, of)) {
    SoftmaxTile softmax(logits.unit());
    Acc acc;
    clear(acc);
    if (tile.sees()) {
      worker.multiply_tile(acc, softmax, tile, logits, row_in_tile + accumulator_row());
    }
    RowFactors inverse, log2_sum;
    if constexpr (sink == sink_head) {
      const int row = row_in_tile + accumulator_row();
      softmax.finish({sinks[tile.head_of(row)] * kLog2E, sinks[tile.head_of(row + 8)] * kLog2E},
                     inverse, log2_sum);
    } else {
      softmax.finish(inverse, log2_sum);
    }
    store_result(acc, inverse, row_in_tile, tile, o, of.q_tokens, ldo);
    if constexpr (kRowsDiffer) {
      store_slow_path_rows(acc, softmax, inverse, from, of, row_in_tile, tile, logits, o, ldo);
    }
    if constexpr (lse != lse_none) {
      store_lse(log2_sum, row_in_tile, tile, lse_out, of.q_tokens);
    }
  }
  if (group == 0) take_turn(group);  // the turn that the last warpgroup gave
}

}  // namespace

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    attention_wave(KW_PARAMETERS(attention_wave)) {
  extern __shared__ unsigned char memory[];
  const Addresses at{aligned_shared(memory)};
  const int role = warpgroup_number();
  const int warp = warp_number();
  const Sequences of{q_offsets, kv_offsets, kv_lengths,   page_table, batch,
                     q_len,     kv_len,     Q_TOKENS,     KV_TOKENS,  pages,
                     ld_table,  table_rows, page_offsets, page_list};
  const int tiles = (q_len + Tile::kQueries - 1) / Tile::kQueries * (heads / kHeads) * batch;
  if (warp == 0 && elect_one()) {
    tma_prefetch(map_q);
    tma_prefetch(map_k);
    tma_prefetch(map_v);
    TilePipeline(at.key_barriers()).init(WGS * 4, kGathered ? 32 : 1);
    TilePipeline(at.value_barriers()).init(WGS * 4, kGathered ? 32 : 1);
    QueryPipeline(at.query_barriers()).init(WGS * 4);
    WorkQueue(at.work()).init(WGS * 4 + (biased ? 3 : 1));
    if constexpr (biased) BiasPipeline(at.bias_barriers()).init(4, kBiasThreads);
    mbarrier_init_fence();
  }
  __syncthreads();
  release_next_kernel();
  await_previous_kernel();
  const Logits logits =
      Logits::of(scale, cap, slopes, seen, bias, kv_len, ldbias_batch, ldbias_head, ldbias);
  if (role == 0) {
    registers_release<kRegisters.producer>();
    if constexpr (kGathered) {
      const HeadRows keys{k, ldk, head_dim}, values{v, ldv, head_dim_v};
      if (warp == 0) produce_keys(map_q, keys, of, at, tiles, SECTION, counters);
      if (warp == 1) produce_values(values, of, at);
    } else {
      if (warp == 0) produce_keys(map_q, map_k, of, at, tiles, SECTION, counters);
      if (warp == 1) produce_values(map_v, of, at);
    }
    if constexpr (biased) {
      WorkQueue work(at.work());
      if (warp >= 2) {
        produce_bias<BiasTensor::Element>(logits.tensor, at, [&] { return take(work, of); });
      }
    }
  } else {
    registers_claim<kRegisters.consumer>();
    consume({q, k, v, ldq, ldk, ldv}, of, logits, at, role - 1, sinks, o, lse, ldo);
  }
}
