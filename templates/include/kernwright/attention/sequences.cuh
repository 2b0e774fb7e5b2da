#pragma once
// The places of a sequence's tokens, and which of its keys a query sees. For the operation
// attention, whose flags and constant dims it reads.

#include <kernwright/config.cuh>
#include <kernwright/math/types.cuh>

namespace kernwright {

// The sequences of a launch. Arrays that the flags do not ask for are null.
struct Sequences {
  const int* q_offsets;
  const int* kv_offsets;
  const int* kv_lengths;
  const int* page_table;
  int batch, q_len, kv_len;
  int q_tokens, kv_tokens;  // of an entry of the outermost dim, if the cache is not paged
  int pages, table_pitch;
  const int *table_rows, *page_offsets, *page_list;

  // Returns the page of each `page` keys of a sequence, from the first on.
  __device__ __forceinline__ const int* pages_of(int sequence) const {
    if constexpr (config::table == config::table_list) return page_list + page_offsets[sequence];
    const long long row =
        config::table_rows == config::table_rows_given ? table_rows[sequence] : sequence;
    return page_table + row * table_pitch;
  }
};

// One sequence: its number of queries and keys, its first tokens in q and o, and in k and v, and
// their places along the outermost dim.
struct Sequence {
  int number, queries, keys;
  int q_first = 0, kv_first = 0;
  int q_batch, kv_batch;

  __device__ __forceinline__ Sequence(int number, const Sequences& of)
      : number(number), queries(of.q_len), keys(of.kv_len), q_batch(number), kv_batch(number) {
    using namespace config;
    if constexpr (lengths == lengths_ragged) {
      q_first = of.q_offsets[number];
      queries = of.q_offsets[number + 1] - q_first;
      q_batch = kv_batch = 0;
      if constexpr (cache == cache_contiguous) {
        kv_first = of.kv_offsets[number];
        keys = of.kv_offsets[number + 1] - kv_first;
      }
    }
    if constexpr (lengths == lengths_kv || (lengths == lengths_ragged && cache == cache_paged)) {
      keys = of.kv_lengths[number];
    }
  }

  // Makes a sequence of which all is known except the place of its keys.
  __device__ __forceinline__ Sequence(int number, int queries, int keys, int q_first)
      : number(number), queries(queries), keys(keys), q_first(q_first) {
    q_batch = kv_batch = config::lengths == config::lengths_ragged ? 0 : number;
  }

  // Returns the position of query 0 among the keys.
  __device__ __forceinline__ int shift() const {
    return config::mask == config::mask_causal_first ? 0 : keys - queries;
  }
  // Return the keys that queries [first, end) see between them: [first_key, end_key).
  __device__ __forceinline__ int first_key(int first) const {
    using namespace config;
    return mask == mask_window ? max(0, first + shift() - (window - 1)) : 0;
  }
  __device__ __forceinline__ int end_key(int end) const {
    using namespace config;
    return mask == mask_none ? keys : min(keys, min(end, queries) + shift());
  }
};

// Returns the first element of a head at a token. `entry` counts along the outermost dim, whose
// entries have `tokens` of `all_heads` heads with `width` elements. `ld` is the distance of rows.
__device__ __forceinline__ long long place_of(long long entry, long long token, int head,
                                              long long tokens, int all_heads, int ld, int width) {
  using namespace config;
  return layout == layout_bshd ? (entry * tokens + token) * ld + head * width
                               : ((entry * all_heads + head) * tokens + token) * ld;
}

// Returns the place in q and o of a query of a sequence.
__device__ __forceinline__ long long query_place(const Sequence& sequence, int query, int head,
                                                 int tokens, int ld, int width) {
  return place_of(sequence.q_batch, sequence.q_first + query, head, tokens, config::heads, ld,
                  width);
}

// Returns the place in k and v of a key of a sequence.
__device__ __forceinline__ long long key_place(const Sequence& sequence, int key, int kv_head,
                                               const Sequences& of, int ld, int width) {
  using namespace config;
  if constexpr (cache == cache_paged) {
    return place_of(of.pages_of(sequence.number)[key / page], key % page, kv_head, page, kv_heads,
                    ld, width);
  } else {
    return place_of(sequence.kv_batch, sequence.kv_first + key, kv_head, of.kv_tokens, kv_heads, ld,
                    width);
  }
}

// Returns the place in lse, which has a number for each query of each head.
__device__ __forceinline__ long long lse_place(const Sequence& sequence, int query, int head,
                                               int tokens) {
  const long long line = sequence.q_batch * static_cast<long long>(config::heads) + head;
  return line * tokens + sequence.q_first + query;
}

}  // namespace kernwright
