#include "sequences.cuh"
#include <kernwright/attention/drawing.cuh>

using namespace kernwright;
using namespace kernwright::config;

// Every kernel goes through the sequences and their tokens, and fills the tensors that are passed.
// Elements that no query sees are left as they are: the tails of pages, unused pages, and keys
// behind the last query.

enum Set { kTiming, kExact, kCount, kNan };
// Streams of random numbers: each role of an element has its own.
enum Stream { kQuery, kKey, kSink, kTarget, kLength, kOrder, kPages, kNanQuery, kNanKey, kStreams };

// A query is a key times this: the logit of that key is then far above all others.
constexpr float kLead = 16;
constexpr bool kRagged = lengths == lengths_ragged;
constexpr bool kPaged = cache_layout == cache_paged;
// Keys at the end of a sequence among which the NaN set has NaN: few enough that most rows of a
// long sequence see none.
constexpr int kNanKeys = 256;

struct Sequence {
  long long number = 0;
  long long q_first = 0, queries = 0;  // its first token in a ragged batch
  long long kv_first = 0, keys = 0;    // the first of its keys there
  long long page_first = 0;            // the pages of those before it
};

struct Draw {
  Set set;
  unsigned long long seed;
  dtype_t *q, *q_rope, *cache, *rope_cache;
  int *q_offsets, *kv_offsets, *kv_lengths, *page_table;
  float* sinks;
  long long batch, heads, q_len, kv_len, latent, rope_width, q_total, kv_total, q_tokens, kv_tokens;
  long long page, pages, ld_table, ldq, ldq_rope, ld_cache, ld_rope;

  __device__ unsigned long long bits(Stream stream, long long sequence, long long token,
                                     long long head, long long d) const {
    const auto place =
        static_cast<unsigned long long>((token * heads + head) * (latent + rope_width) + d);
    const auto of_sequence = static_cast<unsigned long long>(sequence) * kStreams +
                             static_cast<unsigned long long>(stream);
    return hash_at(hash_at(seed, of_sequence), place);
  }

  // Returns whether this element is NaN in the NaN set: one element of one in `often` rows.
  __device__ bool is_nan(Stream stream, const Sequence& s, long long token, long long head,
                         long long d, unsigned often) const {
    if (set != kNan) return false;
    const unsigned long long random = bits(stream, s.number, token, head, 0);
    const auto size = static_cast<unsigned long long>(latent + rope_width);
    return random % often == 0 && static_cast<long long>((random >> 32) % size) == d;
  }

  // Returns element d of a key: its latent, and behind it its rotated part.
  __device__ float key(const Sequence& s, long long j, long long d) const {
    // Only some queries see the last four keys.
    const unsigned often = j + 4 >= s.keys ? 8 : 1024;
    if (j + kNanKeys >= s.keys && is_nan(kNanKey, s, j, 0, d, often)) {
      return __int_as_float(0x7fffffff);
    }
    const unsigned long long random = bits(kKey, s.number, j, 0, d);
    if (set == kExact) return sign(random);
    if (set != kCount) return normal(random);
    // The first rotated element alone meets a query that is not zero.
    if (d == latent) return 1;
    return d < latent ? (d == j % latent ? 1.0f : 0.0f) : normal(random);
  }

  // Returns element d of a query.
  __device__ float query_of(const Sequence& s, long long i, long long head, long long d) const {
    if (is_nan(kNanQuery, s, i, head, d, 256)) return __int_as_float(0x7fffffff);
    if (set == kTiming || set == kNan) return normal(bits(kQuery, s.number, i, head, d));
    if (set == kCount) {
      // Logits around 0, and for some heads far from it on either side.
      const float far[] = {0, -1024, 0, 512};
      return d == latent ? far[head % 4] : 0.0f;
    }
    const long long visible = end_of_query(i, s.queries, s.keys);
    if (visible == 0) return 1;
    const auto target = static_cast<long long>(bits(kTarget, s.number, i, head, 0) %
                                               static_cast<unsigned long long>(visible));
    return kLead * key(s, target, d);
  }

  __device__ void fill_queries(const Sequence& s, long long begin) const {
    const long long width = latent + rope_width;
    for (long long i = begin; i < s.queries; i += gridDim.x) {
      const long long token = kRagged ? s.q_first + i : s.number * q_tokens + i;
      for (long long e = threadIdx.x; e < heads * width; e += blockDim.x) {
        const long long head = e / width, d = e % width;
        const bool is_split = query == query_split;
        const bool is_rope = is_split && d >= latent;
        dtype_t* const to = is_rope ? q_rope : q;
        if (!to) continue;
        const long long at = is_rope ? token * ldq_rope + head * rope_width + d - latent
                                     : token * ldq + head * (is_split ? latent : width) + d;
        to[at] = from_float<dtype_t>(query_of(s, i, head, d));
      }
    }
  }

  __device__ void fill_keys(const Sequence& s, const Order& order, long long begin) const {
    if (s.queries == 0) return;
    for (long long j = begin; j < s.keys; j += gridDim.x) {
      const long long token = kPaged    ? order(s.page_first + j / page) * page + j % page
                              : kRagged ? s.kv_first + j
                                        : s.number * kv_tokens + j;
      for (long long d = threadIdx.x; d < latent + rope_width; d += blockDim.x) {
        const bool is_apart = config::keys == keys_apart && d >= latent;
        dtype_t* const to = is_apart ? rope_cache : cache;
        if (!to) continue;
        to[is_apart ? token * ld_rope + d - latent : token * ld_cache + d] =
            from_float<dtype_t>(key(s, j, d));
      }
    }
  }

  // Fills the entries of the small tensors that belong to a sequence.
  __device__ void fill_tables(const Sequence& s, const Order& order) const {
    if (q_offsets) {
      q_offsets[s.number] = static_cast<int>(s.q_first);
      q_offsets[s.number + 1] = static_cast<int>(s.q_first + s.queries);
    }
    if (kv_offsets) {
      kv_offsets[s.number] = static_cast<int>(s.kv_first);
      kv_offsets[s.number + 1] = static_cast<int>(s.kv_first + s.keys);
    }
    if (kv_lengths) kv_lengths[s.number] = static_cast<int>(s.keys);
    if (!page_table) return;
    const long long used = ceil_div(s.keys, page);
    for (long long c = 0; c < ceil_div(kv_len, page); ++c) {
      page_table[s.number * ld_table + c] =
          c < used ? static_cast<int>(order(s.page_first + c)) : kNoPage;
    }
  }

  // Returns a sequence with its number of queries and keys.
  __device__ Sequence sized(long long number, const Order& order) const {
    const long long rank = order(number);
    Sequence s;
    s.number = number;
    s.queries = Lengths{batch, q_total, q_len}(rank);
    s.keys = Lengths{batch, kv_total, min(kv_len, kv_total)}(rank);
    if ((set == kExact || set == kCount) && lengths != lengths_full && (kPaged || !kRagged)) {
      s.keys = min(s.keys, edge(bits(kLength, s.number, 0, 0, 0), page, s.keys));
    }
    return s;
  }

  __device__ void run() const {
    const Order sequence_order(hash_at(seed, kOrder), batch);
    const Order page_order(hash_at(seed, kPages), pages);
    if (sinks && blockIdx.x == 0) {
      for (long long head = threadIdx.x; head < heads; head += blockDim.x) {
        const bool no_sink = set == kCount && head % 4 == 1;
        sinks[head] = no_sink ? __int_as_float(0xff800000) : normal(bits(kSink, 0, 0, head, 0));
      }
    }
    Sequence s;
    for (; s.number < batch; ++s.number) {
      const Sequence size_of = sized(s.number, sequence_order);
      s.queries = size_of.queries;
      s.keys = size_of.keys;
      const long long begin = (blockIdx.x + s.number) % gridDim.x;
      if (q || q_rope) fill_queries(s, begin);
      if (cache || rope_cache) fill_keys(s, page_order, begin);
      if (blockIdx.x == 0 && threadIdx.x == 0) fill_tables(s, page_order);
      s.q_first += s.queries;
      s.kv_first += s.keys;
      s.page_first += ceil_div(s.keys, page);
    }
  }
};

// Tensors that the problem lacks are null here already, so that no code is made for them.
#define DRAW(set)                                                           \
  Draw{set,                                                                 \
       static_cast<unsigned long long>(seed),                               \
       q,                                                                   \
       query == query_split ? q_rope : nullptr,                             \
       cache,                                                               \
       config::keys == keys_apart ? rope_cache : nullptr,                   \
       kRagged ? q_offsets : nullptr,                                       \
       kRagged && !kPaged ? kv_offsets : nullptr,                           \
       lengths == lengths_kv || (kRagged && kPaged) ? kv_lengths : nullptr, \
       kPaged ? page_table : nullptr,                                       \
       sink == sink_head ? sinks : nullptr,                                 \
       batch,                                                               \
       heads,                                                               \
       q_len,                                                               \
       kv_len,                                                              \
       latent,                                                              \
       rope_width,                                                          \
       q_total,                                                             \
       kv_total,                                                            \
       q_tokens,                                                            \
       kv_tokens,                                                           \
       page,                                                                \
       pages,                                                               \
       ld_table,                                                            \
       ldq,                                                                 \
       ldq_rope,                                                            \
       ld_cache,                                                            \
       ld_rope}                                                             \
      .run()

// Draws normal numbers everywhere.
extern "C" __global__ void mla_attention_timing(KW_PARAMETERS(mla_attention_timing)) {
  DRAW(kTiming);
}

// Draws keys that are signs, and queries that are 16 times a key that they see. Beside e^(this
// key's logit) all others vanish, and the result is the latent of that key to the last bit.
extern "C" __global__ void mla_attention_exact(KW_PARAMETERS(mla_attention_exact)) { DRAW(kExact); }

// Draws inputs for which all logits of a query are equal: the result is the mean of the latents
// that it sees, and its lse the logarithm of their number.
extern "C" __global__ void mla_attention_count(KW_PARAMETERS(mla_attention_count)) { DRAW(kCount); }

// Draws normal numbers, with NaN: in one of 256 queries, in one of 1024 keys near the end of a
// sequence, and in every eighth of its last four keys, which only some queries see.
extern "C" __global__ void mla_attention_nan(KW_PARAMETERS(mla_attention_nan)) { DRAW(kNan); }
