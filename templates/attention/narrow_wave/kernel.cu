// Attention of fp8 queries, keys and values for many queries of a sequence (Hopper): o = softmax(
// scale * q * k^T) * v, multiplied in fp8.
//
// A block takes tiles of BM queries of one head, one after the other, by a counter that all blocks
// share. One warp loads by TMA: a tile's queries, and its keys and values in tiles of BN, from the
// last key to the first. WGS warpgroups multiply by wgmma, 64 queries each: scores in registers,
// their softmax there, and probabilities rounded to fp8 in registers as the operand of the second
// product.
//
//   TRANSPOSE  0: three warps transpose each tile of values from one ring into another. 1: a kernel
//              before transposes all of them, once for all tiles of queries
//   OVERLAP    the products for the next tile's scores and with this one's probabilities run while
//              a warpgroup exponentiates; without, it does one thing after the other
//   QSTAGES    2: the next tile's queries are loaded while this one is worked on
//
// The tensor cores keep about 14 bits of a sum of fp8 products. So they sum the values of one tile
// only, and these sums are added in fp32.
//
// Probabilities are scaled to at most 2^8, near the largest numbers of fp8: those below 2^-17 of
// the largest vanish.
//
// Only key tiles that the mask cuts for some query of the warpgroup are masked element by element.
// Values outside every query's range may be NaN, and 0 * NaN is NaN, so they are transposed to
// zeros. A value that some queries of a tile see and others do not is hardly ever NaN: rows with
// such sums are computed again without tiles, on the slow path.

#include "layout.cuh"
#include "transpose.cuh"
#include <kernwright/attention/narrow.cuh>
#include <kernwright/attention/scales.cuh>
#include <kernwright/attention/scores.cuh>
#include <kernwright/attention/tile_loop.cuh>
#include <kernwright/math/types.cuh>
#include <kernwright/ptx/mbarrier.cuh>
#include <kernwright/ptx/programmatic.cuh>
#include <kernwright/ptx/stmatrix.cuh>
#include <kernwright/ptx/tma.cuh>
#include <kernwright/ptx/warp_roles.cuh>
#include <kernwright/tile/frame.cuh>
#include <kernwright/tile/softmax_tile.cuh>

namespace {

constexpr float kShift = 8;  // of the largest p, in base 2

// The tiles of queries of a launch: how many, and the heads of a section (tile_at).
struct Tiles {
  int count, section;
};

// Returns the number of the next tile, from the warp that loads.
__device__ __forceinline__ int take_number(NumberQueue& numbers) {
  return numbers.take([](const NumberQueue::Tile& words) { return words[0]; });
}

// Returns the transposed values of keys [j * BN, (j + 1) * BN) of a sequence, in the layout that
// they get in shared memory.
__device__ __forceinline__ unsigned char* image(unsigned char* images, const Sequences& of,
                                                const Sequence& sequence, int j, int kv_head) {
  long long first = static_cast<long long>(sequence.number) * ((of.kv_len + BN - 1) / BN);
  // Sequences that follow each other have at most one tile each beyond the tiles that their keys
  // fill.
  constexpr bool kPacked = lengths == lengths_ragged && cache == cache_contiguous;
  if constexpr (kPacked) first = sequence.kv_first / BN + sequence.number;
  return images + ((first + j) * kv_heads + kv_head) * kTransposedBytes;
}

// Run by one warp.
__device__ __forceinline__ void produce(const TensorMap& map_q, const TensorMap& map_k,
                                        const TensorMap& map_v, const Sequences& of, Addresses at,
                                        Tiles tiles, int* counters, unsigned char* images) {
  const int lane = threadIdx.x % 32;
  TilePipeline keys(at.key_barriers());
  TilePipeline values(TRANSPOSE ? at.transposed_barriers() : at.value_barriers());
  QueryPipeline queries(at.query_barriers());
  NumberQueue numbers(at.numbers());
  int number = blockIdx.x;
  while (number < tiles.count) {
    const Tile tile = tile_at<1>(number, tiles.section, of);
    const int kv_head = tile.kv_head();
    if (lane == 0) number = NumberQueue::next_number(counters);
    const auto load_keys = [&](int j) {
      keys.warp_acquire(kKeyBytes);
      load_tokens<kBoxesD, BN>(at.k(keys.stage()), map_k, keys.full(), of, tile.sequence, j * BN,
                               kv_head);
      keys.advance();
    };
    const auto load_values = [&](int j) {
      if constexpr (TRANSPOSE) {
        values.warp_acquire(kTransposedBytes);
        if (lane == 0) {
          bulk_load(at.transposed(values.stage()), image(images, of, tile.sequence, j, kv_head),
                    kTransposedBytes, values.full());
        }
      } else {
        values.warp_acquire(kValueBytes);
        load_tokens<kBoxesDv, BN>(at.v(values.stage()), map_v, values.full(), of, tile.sequence,
                                  j * BN, kv_head);
      }
      values.advance();
    };
    const bool sees = tile.sees();
    if (sees) load_keys(tile.last - 1);
    queries.warp_acquire(kQueryBytes);
    load_queries(at.q(queries.stage()), map_q, queries.full(), tile);
    queries.advance();
    if (sees) {
#pragma unroll 1
      for (int j = tile.last - 2; j >= tile.first; --j) {
        load_keys(j);
        load_values(j + 1);
      }
      load_values(tile.first);
    }
    // The number of the next tile, for the warps that multiply.
    if (lane == 0) numbers.publish({number});
    number = __shfl_sync(~0u, number, 0);
    numbers.advance();
  }
  if (lane == 0) NumberQueue::finish(counters);
}

// Run by the warps beside the one that loads.
__device__ __forceinline__ void transpose_values(const Sequences& of, Addresses at, Tiles tiles,
                                                 int warp) {
  TilePipeline values(at.value_barriers()), transposed(at.transposed_barriers());
  NumberQueue numbers(at.numbers());
  int number = blockIdx.x;
  while (number < tiles.count) {
    const Tile tile = tile_at<1>(number, tiles.section, of);
#pragma unroll 1
    for (int j = tile.last - 1; j >= tile.first; --j) {
      const int key = j * BN;
      values.consumer_wait();
      transposed.producer_wait();
      transpose(at.v(values.stage()), at.transposed(transposed.stage()),
                tile.sequence.first_key(0) - key, tile.sequence.keys - key, warp);
      tma_store_fence();
      __syncwarp();
      values.consumer_release(values.stage());
      values.advance();
      if (threadIdx.x % 32 == 0) mbarrier_arrive(transposed.full());
      transposed.advance();
    }
    number = take_number(numbers);
  }
}

// Stores the warp's 16 rows of the result. Four lanes store 32 neighbouring bytes of a row.
__device__ __forceinline__ void store_result(const Acc& acc, const RowFactors& inverse,
                                             int row_in_tile, const Tile& tile,
                                             out_t* __restrict__ o, int q_tokens, int ldo) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = tile.row + row_in_tile + accumulator_row() + half * 8;
    if (query >= tile.sequence.queries) continue;
    out_t* to = o + threadIdx.x % 4 * 4 +
                query_place(tile.sequence, query, tile.head, q_tokens, ldo, head_dim_v);
#pragma unroll
    for (int column = 0; column < kColumns; column += 16) {
      float quad[4];
      fp8_columns(quad, acc, column, half);
#pragma unroll
      for (float& x : quad) x *= inverse[half];
      *reinterpret_cast<uint2*>(to + column) = {pack_pair<out_t>(quad[0], quad[1]),
                                                pack_pair<out_t>(quad[2], quad[3])};
    }
  }
  __syncwarp();
}

// The first row of a warp, and of its warpgroup, in their sequence.
struct FirstRows {
  int of_warp, of_group;
};

// Multiplies the tiles of keys of one tile of queries. Run by one warpgroup.
class Worker {
 public:
  __device__ __forceinline__ explicit Worker(Addresses at)
      : at_(at), keys_(at.key_barriers()), values_(at.transposed_barriers()) {}

  __device__ __forceinline__ void multiply_tile(Acc& o, SoftmaxTile& softmax, const OperandQ& q,
                                                const Tile& tile, const Logits& logits,
                                                FirstRows rows) {
    OperandP p;
    RowFactors factor;
    int key = (tile.last - 1) * BN;
    {
      Scores s;
      keys_.consumer_wait();
      issue_scores(s, q);
      await_scores<0>(s);
      score(s, tile, logits, rows, key);
      softmax.exponentiate(s[0], factor);
      round_fp8_operand(s[0], p);
    }
#pragma unroll 1
    for (; key > tile.first * BN; key -= BN) {
      Scores s;  // of this iteration alone, so that neither keeps registers in the other's time
      RowFactors next;
      if constexpr (OVERLAP) {
        keys_.consumer_wait();
        issue_scores(s, q);
        multiply_beside(o, factor, p, s, softmax, next, tile, logits, rows, key - BN);
      } else {
        values_.consumer_wait();
        multiply_values(o, factor, p);
        keys_.consumer_wait();
        issue_scores(s, q);
        await_scores<0>(s);
        score(s, tile, logits, rows, key - BN);
        softmax.exponentiate(s[0], next);
      }
      factor[0] = next[0];
      factor[1] = next[1];
      round_fp8_operand(s[0], p);
    }
    values_.consumer_wait();
    multiply_values(o, factor, p);
  }

 private:
  // Multiplies a tile's values by its probabilities, one part of the columns after the other.
  // Recursion over the parts would make ptxas spill.
  __device__ __forceinline__ void multiply_values(Acc& o, const RowFactors& factor, OperandP& p) {
    multiply_part<0>(o, factor, p);
    multiply_part<PART_COLUMNS>(o, factor, p);
    multiply_part<2 * PART_COLUMNS>(o, factor, p);
    multiply_part<3 * PART_COLUMNS>(o, factor, p);
    release_values();
  }
  template <int First>
  __device__ __forceinline__ void multiply_part(Acc& o, const RowFactors& factor, OperandP& p) {
    if constexpr (First < kColumns) {
      PartFrom<First> part;
      issue_results<First>(part, p);
      await_results(part, p);
      add<First>(o, factor, part);
    }
  }

  // Multiplies this tile's values by its probabilities, while the softmax of the next tile's
  // scores, which have been issued, is exponentiated. If the values come in two parts, the first
  // part runs while the largest scores are searched.
  __device__ __forceinline__ void multiply_beside(Acc& o, const RowFactors& factor, OperandP& p,
                                                  Scores& s, SoftmaxTile& softmax, RowFactors& next,
                                                  const Tile& tile, const Logits& logits,
                                                  FirstRows rows, int key) {
    values_.consumer_wait();
    PartFrom<0> first;
    issue_results<0>(first, p);
    await_scores<1>(s);
    score(s, tile, logits, rows, key);
    softmax.raise(s[0], next);
    if constexpr (PARTS == 1) {
      softmax.weigh(s[0]);
      keep_before(s[0]);
      await_results(first, p);
      add<0>(o, factor, first);
    } else {
      keep_before(next);
      await_results(first, p);
      add<0>(o, factor, first);
      constexpr int kFirst = PARTS == 1 ? 0 : PART_COLUMNS;
      PartFrom<kFirst> other;
      issue_results<kFirst>(other, p);
      keep_after(s[0]);
      softmax.weigh(s[0]);
      keep_before(s[0]);
      await_results(other, p);
      add<kFirst>(o, factor, other);
    }
    release_values();
  }

  // Keeps the instructions that compute x before this point, or those that use x behind it.
  // Otherwise ptxas moves the softmax behind the wait for products, and nothing overlaps. It moves
  // nothing out of a basic block, and a wait for data that has landed already ends one.
  template <int Count>
  __device__ __forceinline__ void keep_before(float (&x)[Count]) const {
    wgmma_pin(x);
    values_.consumer_wait();
  }
  template <int Count>
  __device__ __forceinline__ void keep_after(float (&x)[Count]) const {
    values_.consumer_wait();
    wgmma_pin(x);
  }

  template <int First, int Registers>
  static __device__ __forceinline__ void add(Acc& o, const RowFactors& factor,
                                             const float (&part)[Registers]) {
#pragma unroll
    for (int i = 0; i < Registers; ++i) {
      float& sum = o[First / 2 + i];
      sum = fmaf(sum, factor[register_row(i) / 8], part[i]);
    }
  }

  __device__ __forceinline__ void issue_scores(Scores& s, const OperandQ& q) const {
    wgmma_pin(s[0]);
    wgmma_fence();
    multiply<fp8_e4m3>(s, q, 0, OperandK(at_.k(keys_.stage())), 0, kSteps, false);
    wgmma_commit();
  }

  template <int Pending>
  __device__ __forceinline__ void await_scores(Scores& s) {
    wgmma_wait<Pending>();
    wgmma_pin(s[0]);
    keys_.consumer_release(keys_.stage());
    keys_.advance();
  }

  // Issues the sums of a tile's values in the part of the columns from `First` on.
  template <int First, int Registers>
  __device__ __forceinline__ void issue_results(float (&part)[Registers], OperandP& p) const {
    pin_operand(p);
    wgmma_pin(part);
    wgmma_fence();
    multiply<fp8_e4m3>(part, p, OperandV(at_.transposed(values_.stage()), First), 0, false);
    wgmma_commit();
  }

  template <int Registers>
  __device__ __forceinline__ void await_results(float (&part)[Registers], OperandP& p) const {
    wgmma_wait<0>();
    wgmma_pin(part);
    pin_operand(p);
  }

  __device__ __forceinline__ void release_values() {
    values_.consumer_release(values_.stage());
    values_.advance();
  }

  __device__ __forceinline__ void score(Scores& s, const Tile& tile, const Logits& logits,
                                        FirstRows rows, int key) const {
    const int position = rows.of_warp + accumulator_row() + tile.sequence.shift();
    const int positions[2] = {position, position + 8}, head[2] = {tile.head, tile.head};
    make_scores(s[0], logits, positions, head, key);
    if (needs_mask(tile.sequence, rows.of_group, rows.of_group + 63, key)) {
      apply_mask(s[0], positions, tile.sequence.keys, key);
    }
  }

  Addresses at_;
  TilePipeline keys_, values_;
};

// Run by one warpgroup.
__device__ __forceinline__ void consume(const Operands& from, const Sequences& of,
                                        const Logits& unscaled, const Scales& scales, Addresses at,
                                        Tiles tiles, int group, const float* __restrict__ sinks,
                                        out_t* __restrict__ o, int ldo) {
  Worker worker(at);
  QueryPipeline queries(at.query_barriers());
  NumberQueue numbers(at.numbers());
  const int row_in_tile = group * 64 + warp_in_group() * 16;
  int number = blockIdx.x;
  while (number < tiles.count) {
    const Tile tile = tile_at<1>(number, tiles.section, of);
    queries.consumer_wait();
    const int stage = queries.stage();
    const int kv_head = tile.kv_head();
    Logits logits = unscaled;
    logits.scale *= scales.of_products(tile.sequence.number, kv_head);
    SoftmaxTile softmax(logits.unit(), kShift);
    Acc acc;
    clear(acc);
    if (tile.sees()) {
      worker.multiply_tile(acc, softmax, OperandQ(at.q(stage), group * 64), tile, logits,
                           {tile.row + row_in_tile, tile.row + group * 64});
    }
    queries.consumer_release(stage);
    queries.advance();
    RowFactors inverse, log2_sum;
    if constexpr (sink == sink_head) {
      const float logit = sinks[tile.head] * kLog2E;
      softmax.finish({logit, logit}, inverse, log2_sum);
    } else {
      softmax.finish(inverse, log2_sum);
    }
    const float of_values = scales.of_values(tile.sequence.number, kv_head);
    inverse[0] *= of_values;
    inverse[1] *= of_values;
    store_result(acc, inverse, row_in_tile, tile, o, of.q_tokens, ldo);
    if constexpr (mask != mask_none) {
      store_slow_path_rows(acc, softmax, inverse, from, of, row_in_tile, tile, logits, o, ldo);
    }
    number = take_number(numbers);
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    attention_narrow_wave(KW_PARAMETERS(attention_narrow_wave)) {
  extern __shared__ unsigned char memory[];
  const Addresses at{aligned_shared(memory)};
  const int role = warpgroup_number();
  const int warp = warp_number();
  const Sequences of{q_offsets, kv_offsets, kv_lengths,   page_table, batch,
                     q_len,     kv_len,     Q_TOKENS,     KV_TOKENS,  pages,
                     ld_table,  table_rows, page_offsets, page_list};
  const int tiles = (q_len + BM - 1) / BM * heads * batch;
  if (warp == 0 && elect_one()) {
    tma_prefetch(map_q);
    tma_prefetch(map_k);
    tma_prefetch(map_v);
    TilePipeline(at.key_barriers()).init(WGS * 4);
    TilePipeline(at.value_barriers()).init(TRANSPOSERS);
    TilePipeline(at.transposed_barriers()).init(WGS * 4, TRANSPOSE ? 1 : TRANSPOSERS);
    QueryPipeline(at.query_barriers()).init(WGS * 4);
    NumberQueue(at.numbers()).init(WGS * 4 + (TRANSPOSE ? 0 : TRANSPOSERS));
    mbarrier_init_fence();
  }
  __syncthreads();
  release_next_kernel();
  await_previous_kernel();
  if (role == 0) {
    registers_release<kRegisters.producer>();
    if (warp == 0) {
      produce(map_q, map_k, map_v, of, at, {tiles, SECTION}, counters, images);
    } else if constexpr (!TRANSPOSE) {
      transpose_values(of, at, {tiles, SECTION}, warp - 1);
    }
  } else {
    registers_claim<kRegisters.consumer>();
    const Scales scales{q_descale, k_descale, v_descale, q_scale, k_scale, v_scale};
    consume({q, k, v, ldq, ldk, ldv}, of, {scale, cap, slopes}, scales, at, {tiles, SECTION},
            role - 1, sinks, o, ldo);
  }
}

// Transposes values for the kernel above, with a block for each tile of keys of a head. Tiles that
// no query sees are left out.
extern "C" __global__ void __launch_bounds__(32 * TRANSPOSERS)
    attention_narrow_wave_transpose(KW_PARAMETERS(attention_narrow_wave_transpose)) {
  extern __shared__ unsigned char memory[];
  const unsigned from = aligned_shared(memory), to = from + kValueBytes;
  const unsigned full = to + kTransposedBytes;
  const Sequences of{q_offsets, kv_offsets, kv_lengths,   page_table, batch,
                     q_len,     kv_len,     Q_TOKENS,     KV_TOKENS,  pages,
                     ld_table,  table_rows, page_offsets, page_list};
  if (threadIdx.x == 0) {
    mbarrier_init(full, 1);
    mbarrier_init_fence();
  }
  __syncthreads();
  release_next_kernel();
  await_previous_kernel();
  const int kv_head = blockIdx.x % kv_heads, tile = blockIdx.x / kv_heads;
  const int tiles = (kv_len + BN - 1) / BN, j = tile % tiles;
  const Sequence sequence(tile / tiles, of);
  const int begin = sequence.first_key(0) - j * BN, end = sequence.keys - j * BN;
  if (begin >= BN || end <= 0) return;
  const int warp = threadIdx.x / 32;
  if (warp == 0) {
    if (threadIdx.x == 0) mbarrier_arrive_expect(full, kValueBytes);
    __syncwarp();
    load_tokens<kBoxesDv, BN>(from, map_v, full, of, sequence, j * BN, kv_head);
  }
  mbarrier_wait(full, 0);
  transpose(from, to, begin, end, warp);
  __syncthreads();
  unsigned char* const out = image(images, of, sequence, j, kv_head);
  for (int i = threadIdx.x * 16; i < kTransposedBytes; i += 32 * TRANSPOSERS * 16) {
    *reinterpret_cast<float4*>(out + i) = load_quad(to + i);
  }
}
