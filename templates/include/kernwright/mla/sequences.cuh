#pragma once
// The sequences of a launch of latent attention, the rows of their queries, and the keys that a
// block takes of one. For the operation mla_attention, whose flags and constant dims it reads.
//
// All heads share the keys. So row r of a sequence is query r / heads and head r % heads, and a
// block takes `Rows` neighbouring rows.

#include <kernwright/attention/split_sums.cuh>
#include <kernwright/config.cuh>
#include <kernwright/math/bases.cuh>
#include <kernwright/math/exp.cuh>
#include <kernwright/math/types.cuh>
#include <kernwright/ptx/stmatrix.cuh>
#include <kernwright/tile/softmax_tile.cuh>

namespace kernwright {

// Arrays that the flags do not ask for are null.
struct MlaSequences {
  const int *q_offsets, *kv_offsets, *kv_lengths, *page_table;
  int q_len, kv_len;
  int q_tokens, kv_tokens;  // of an entry of the outermost dim
  int pages, table_pitch;
};

struct MlaSequence {
  int number, queries, keys;
  long long q_first;    // its first token in q and o
  long long key_first;  // its first token in a cache without pages
  int lse_entry, lse_first;

  __device__ __forceinline__ MlaSequence(int number, const MlaSequences& of)
      : number(number),
        queries(of.q_len),
        keys(of.kv_len),
        q_first(1ll * number * of.q_tokens),
        key_first(1ll * number * of.kv_tokens),
        lse_entry(number),
        lse_first(0) {
    using namespace config;
    if constexpr (lengths == lengths_ragged) {
      lse_first = of.q_offsets[number];
      queries = of.q_offsets[number + 1] - lse_first;
      q_first = lse_first;
      lse_entry = 0;
      if constexpr (cache == cache_contiguous) {
        key_first = of.kv_offsets[number];
        keys = of.kv_offsets[number + 1] - of.kv_offsets[number];
      }
    }
    if constexpr (lengths == lengths_kv || (lengths == lengths_ragged && cache == cache_paged)) {
      keys = of.kv_lengths[number];
    }
  }

  // Returns the end of the keys that a query sees.
  __device__ __forceinline__ int end_of(int query) const {
    using namespace config;
    return mask == mask_none ? keys : max(0, min(keys, keys - queries + query + 1));
  }
  // Returns the token of a key in memory. The key exists.
  __device__ __forceinline__ long long token_of(int key, const MlaSequences& of) const {
    using namespace config;
    if constexpr (cache == cache_paged) {
      const long long row = 1ll * number * of.table_pitch;
      return 1ll * of.page_table[row + key / page] * page + key % page;
    } else {
      return key_first + key;
    }
  }
};

// The keys [begin, end) of a sequence and the rows that a block takes.
template <int Rows, int Cluster>
struct MlaShare {
  MlaSequence sequence;
  int first_row, rows;
  int split, splits;  // of the rows, only splits with keys
  int begin, end;
  int row_tile, place;

  // All sequences have `row_tiles` tiles of rows, and a tile has `splits_of_rows` blocks.
  __device__ __forceinline__ MlaShare(const MlaSequences& of, int row_tiles, int splits_of_rows,
                                      int keys_of_split)
      : sequence(blockIdx.x / splits_of_rows / row_tiles, of),
        split(blockIdx.x % splits_of_rows),
        row_tile(blockIdx.x / splits_of_rows),
        place(blockIdx.x / splits_of_rows * (splits_of_rows / Cluster)) {
    first_row = row_tile % row_tiles * Rows;
    rows = max(0, min(Rows, sequence.queries * config::heads - first_row));
    const int seen = rows == 0 ? 0 : sequence.end_of(last_query());
    splits = max(1, (seen + keys_of_split - 1) / keys_of_split);
    begin = split * keys_of_split;
    end = min(seen, begin + keys_of_split);
  }
  // Returns the number of the tile of rows among those of all sequences, and the entry of the
  // workspace with the sums of its splits from Cluster * i on.
  __device__ __forceinline__ int head() const { return row_tile; }
  __device__ __forceinline__ long long entry(int i) const { return place + i; }
  __device__ __forceinline__ int query_of(int row) const {
    return (first_row + row) / config::heads;
  }
  __device__ __forceinline__ int head_of(int row) const {
    return (first_row + row) % config::heads;
  }
  __device__ __forceinline__ int last_query() const { return query_of(rows - 1); }
};

// Returns the factor that takes scores to base 2. It is above zero, so that the product with the
// score of a hidden key stays minus infinity. Scores are negated if `scale` is negative.
__device__ __forceinline__ float mla_unit(float scale) {
  return larger(fabsf(scale) * kLog2E, 0x1p-126f);
}

// Overwrites with zeros those elements of 16 bytes in shared memory that are not finite.
__device__ __forceinline__ void clear_not_finite(unsigned address) {
  constexpr unsigned kExponent = config::dtype == config::dtype_bf16 ? 0x7f80 : 0x7c00;
  const auto cleared = [](float bits) {
    const unsigned word = __float_as_uint(bits);
    unsigned kept = 0;
    if ((word & kExponent) != kExponent) kept |= 0xffff;
    if ((word >> 16 & kExponent) != kExponent) kept |= 0xffff0000;
    return __uint_as_float(word & kept);
  };
  const float4 x = load_quad(address);
  store_quad(address, {cleared(x.x), cleared(x.y), cleared(x.z), cleared(x.w)});
}

// Writes results, 4 columns of a row at a time.
struct MlaResults {
  config::dtype_t* o;
  float* lse_out;
  const float* sinks;
  int q_tokens, ldo;

  template <typename Share>
  __device__ __forceinline__ void store(const Share& share, int row, int group, Whole whole) const {
    using namespace config;
    const int head = share.head_of(row), query = share.query_of(row);
    if constexpr (sink == sink_head) {
      whole.add(1, [&](int, SoftmaxPart& part, float4&) { part = {sinks[head] * kLog2E, 1}; });
    }
    const float inverse = whole.sum == 0 ? 0.0f : 1 / whole.sum;
    const float x[4] = {whole.values.x * inverse, whole.values.y * inverse,
                        whole.values.z * inverse, whole.values.w * inverse};
    dtype_t* const to = o + (share.sequence.q_first + query) * ldo + head * latent + group * 4;
    if constexpr (latent % 4 == 0 && kWholeGroups) {
      *reinterpret_cast<uint2*>(to) = {pack_pair<dtype_t>(x[0], x[1]),
                                       pack_pair<dtype_t>(x[2], x[3])};
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (group * 4 + i < latent) to[i] = from_float<dtype_t>(x[i]);
      }
    }
    if (lse != lse_none && group == 0) {
      const float log2_sum =
          whole.sum == 0 ? __int_as_float(0xff800000) : whole.largest + __log2f(whole.sum);
      const long long line = 1ll * share.sequence.lse_entry * heads + head;
      lse_out[line * q_tokens + share.sequence.lse_first + query] =
          lse == lse_base2 ? log2_sum : log2_sum * kLn2;
    }
  }

  // True if rows of o are whole vectors of 4 elements.
  static constexpr bool kWholeGroups = config::VECTORS_O;
};

}  // namespace kernwright
