#include "sequences.cuh"
#include <kernwright/attention/drawing.cuh>
#include <kernwright/attention/schedule_reference.cuh>

using namespace kernwright;
using namespace kernwright::config;

// Every kernel goes through the sequences and their tokens, and fills the tensors that are passed.
// Elements that no query sees are left as they are: the tails of pages, unused pages, keys ahead of
// every window. With append they are filled too, because all of the cache is a result. An element
// depends on the seed and on its role, so that the tensors of a set fit each other.

enum Set { kTiming, kExact, kCount, kNan };
// Streams of random numbers: each role of an element has its own.
enum Stream {
  kQuery,
  kKey,
  kValue,
  kSink,
  kQueryScale,
  kKeyScale,
  kValueScale,
  kTarget,
  kLength,
  kOrder,
  kPages,
  kNanQuery,
  kNanKey,
  kNanValue,
  kTurn,
  kCosine,
  kSine,
  kQueryNorm,
  kKeyNorm,
  kBias,
  kRows,
  kStreams
};

// A query is a key times this: the logit of that key is then far above all others.
constexpr float kLead = 16;
constexpr bool kAppends = append != append_none;
constexpr bool kNorms = append == append_norm_rope;
constexpr bool kRagged = lengths == lengths_ragged;
constexpr bool kPaged = cache == cache_paged;
constexpr bool kListed = table == table_list;
constexpr bool kGivenRows = config::table_rows == table_rows_given;
// Fills places that no query sees, in a cache that is a result: sums that include it are far off.
constexpr float kUnseen = 16384;
// Keys at the end of a sequence among which the NaN set has NaN: few enough that most rows of a
// long sequence see none.
constexpr int kNanKeys = 256;
// Hides a key as minus infinity does, in 16 bits too.
constexpr float kLowest = -0x1.fep127f;

__device__ float not_a_number() { return __int_as_float(0x7fffffff); }

struct Sequence {
  long long number = 0;
  long long q_first = 0;  // its first token in a ragged batch
  long long queries = 0;
  long long kv_first = 0;  // the first of its keys there
  long long keys = 0;
  long long page_first = 0;  // the pages of those before it
};

struct Draw {
  Set set;
  unsigned long long seed;
  dtype_t* q;
  kv_t *k, *v;
  dtype_t *k_new, *v_new, *q_norm, *k_norm;
  float *cosine, *sine;
  int *q_offsets, *kv_offsets, *kv_lengths, *table_rows, *page_table, *page_offsets, *page_list;
  float *sinks, *slopes, *q_descale, *k_descale, *v_descale;
  int* work;
  bool* seen;
  bias_dtype_t* bias;
  long long batch, heads, kv_heads, q_len, kv_len, head_dim, head_dim_v, q_total, kv_total;
  long long page, pages, table_sequences, ld_table, window, slots, ldq, ldk, ldv;
  long long ldk_new, ldv_new;
  BiasRows bias_rows;

  __device__ unsigned long long bits(Stream stream, long long sequence, long long token,
                                     long long head, long long d) const {
    const unsigned long long place = static_cast<unsigned long long>(
        (token * (heads + kv_heads) + head) * (head_dim + head_dim_v) + d);
    const unsigned long long of_sequence =
        static_cast<unsigned long long>(sequence) * kStreams + stream;
    return hash_at(hash_at(seed, of_sequence), place);
  }

  // Returns whether this element is NaN in the NaN set: one in each of every `often` heads of
  // `head_size` elements.
  __device__ bool is_nan(Stream stream, const Sequence& s, long long token, long long head,
                         long long d, long long head_size, unsigned often) const {
    if (set != kNan) return false;
    const unsigned long long random = bits(stream, s.number, token, head, 0);
    return random % often == 0 &&
           static_cast<long long>((random >> 32) % static_cast<unsigned long long>(head_size)) == d;
  }

  // Returns the random numbers of a row of the bias, which queries may share.
  __device__ unsigned long long bias_row(const Sequence& s, long long head, long long i) const {
    return hash_at(hash_at(seed, kBias),
                   static_cast<unsigned long long>(bias_rows.place(s.number, head, i)));
  }
  // Returns whether the bias shows a key to the queries of a row: three of four, and in exact and
  // count sets none in one of eight rows.
  __device__ bool shows(unsigned long long row, long long j) const {
    if (!biased || (config::bias == bias_additive && set != kExact && set != kCount)) return true;
    if (row % 8 == 0 && (set == kExact || set == kCount)) return false;
    return hash_at(row, static_cast<unsigned long long>(j)) % 4 != 0;
  }
  // Returns the bias of a key. In exact and count sets it does not change which logits are far
  // above others, and which are equal.
  __device__ float bias_of(unsigned long long row, long long j) const {
    const unsigned long long random = hash_at(row, static_cast<unsigned long long>(j));
    if (!shows(row, j)) {
      const bool is_wide = sizeof(bias_dtype_t) == 4 || bias_dtype == bias_dtype_bf16;
      return is_wide && random >> 2 & 1 ? kLowest : __int_as_float(0xff800000);
    }
    if (set == kExact) return static_cast<float>((random >> 8) % 3) - 1;
    if (set == kCount) return static_cast<float>((row >> 8) % 3) - 1;
    if (set == kNan && j + kNanKeys >= kv_len && (random >> 8) % 1024 == 0) return not_a_number();
    return normal(random);
  }

  // Returns element d of a key.
  __device__ float key(const Sequence& s, long long j, long long head, long long d) const {
    if (j + kNanKeys >= s.keys && is_nan(kNanKey, s, j, head, d, head_dim, 1024))
      return not_a_number();
    const unsigned long long random = bits(kKey, s.number, j, head, d);
    if (set == kExact) return sign(random);
    // In a count set all logits of a query are equal, whatever the other elements are.
    return set == kCount && d == 0 ? 1.0f : normal(random);
  }

  __device__ float value(const Sequence& s, long long j, long long head, long long d) const {
    const unsigned often = j + 4 >= s.keys ? 2 : 32;
    if (j + kNanKeys >= s.keys && is_nan(kNanValue, s, j, head, d, head_dim_v, often))
      return not_a_number();
    const unsigned long long random = bits(kValue, s.number, j, head, d);
    if (set == kCount) return d == j % head_dim_v ? 1.0f : 0.0f;
    if (set == kExact) return sign(random) * static_cast<float>(1 + (random >> 32) % 3);
    return normal(random);
  }

  // Returns the cosine or the sine of a pair at a position. In exact and count sets the angles are
  // quarter turns, which are exact.
  __device__ float angle(Stream stream, long long position, long long pair) const {
    if (set == kTiming || set == kNan) return normal(bits(stream, 0, position, 0, pair));
    const auto quarters = static_cast<int>(bits(kTurn, 0, position, 0, pair) % 4);
    return static_cast<float>((stream == kCosine ? 1 - quarters : 2 - quarters) % 2);
  }

  // Returns element d of the head that the rotation turns into `head` at the sequence's last
  // position. In the other sets any head will do.
  template <typename Head>
  __device__ float unturned(const Sequence& s, const Head& head, long long d) const {
    if (!kAppends || set == kTiming || set == kNan) return head(d);
    const bool halves = pairs == pairs_halves;
    const long long pair = halves ? d % (head_dim / 2) : d / 2;
    const long long first = halves ? pair : 2 * pair;
    const long long second = halves ? pair + head_dim / 2 : 2 * pair + 1;
    const long long position = max(0ll, s.keys - 1);
    const float c = angle(kCosine, position, pair), sine_of = angle(kSine, position, pair);
    return d == first ? head(first) * c + head(second) * sine_of
                      : head(second) * c - head(first) * sine_of;
  }

  __device__ float query(const Sequence& s, long long i, long long head, long long d) const {
    if (is_nan(kNanQuery, s, i, head, d, head_dim, 256)) return not_a_number();
    if (set == kTiming || set == kNan) return normal(bits(kQuery, s.number, i, head, d));
    if (set == kCount) {
      // Logits around 0, and for some heads far from it on either side. The largest fp8 is 448.
      const float far[] = {0, -1024, 0, 512};
      return d == 0 ? far[head % 4] : 0.0f;
    }
    const Seen visible = seen_by(i, s.queries, s.keys, window);
    if (visible.first >= visible.end) return 1;
    const long long choice = visible.end - visible.first;
    const auto first = static_cast<long long>(bits(kTarget, s.number, i, head, 0) %
                                              static_cast<unsigned long long>(choice));
    const unsigned long long row = bias_row(s, head, i);
    for (long long n = 0; n < choice; ++n) {
      const long long target = visible.first + (first + n) % choice;
      if (shows(row, target)) return kLead * key(s, target, head / (heads / kv_heads), d);
    }
    return 1;
  }

  // Fills the token's heads, each of `own_size` elements, with the threads of the block.
  template <typename T, typename Element>
  __device__ void fill(T* to, long long entry, long long token, long long tokens,
                       long long all_heads, long long own_size, long long pitch,
                       const Element& element) const {
    for (long long e = threadIdx.x; e < all_heads * own_size; e += blockDim.x) {
      const long long head = e / own_size;
      const long long at = place_of(entry, token, head, tokens, all_heads, own_size, pitch);
      to[at + e % own_size] = from_float<T>(element(head, e % own_size));
    }
  }

  __device__ void fill_queries(const Sequence& s, long long begin) const {
    for (long long i = begin; i < s.queries; i += gridDim.x) {
      fill(q, kRagged ? 0 : s.number, kRagged ? s.q_first + i : i, kRagged ? q_total : q_len, heads,
           head_dim, ldq, [&](long long head, long long d) {
             return unturned(s, [&](long long e) { return query(s, i, head, e); }, d);
           });
    }
  }

  // Fills the key and the value of the sequence's last token.
  __device__ void fill_new_token(const Sequence& s) const {
    const long long j = s.keys - 1;
    if (j < 0) return;
    if (k_new) {
      fill(k_new, s.number, 0, 1, kv_heads, head_dim, ldk_new, [&](long long head, long long d) {
        return unturned(s, [&](long long e) { return key(s, j, head, e); }, d);
      });
    }
    if (v_new) {
      fill(v_new, s.number, 0, 1, kv_heads, head_dim_v, ldv_new,
           [&](long long head, long long d) { return value(s, j, head, d); });
    }
  }

  __device__ void fill_angles(float* to, Stream stream) const {
    if (!to) return;
    for (long long i = blockIdx.x; i < kv_len; i += gridDim.x) {
      for (long long e = threadIdx.x; e < head_dim / 2; e += blockDim.x) {
        to[i * (head_dim / 2) + e] = angle(stream, i, e);
      }
    }
  }

  // Fills weights, never with NaN: a weight that is NaN would leave no head a number.
  __device__ void fill_weights(dtype_t* to, Stream stream) const {
    if (!to) return;
    for (long long e = threadIdx.x; e < head_dim; e += blockDim.x) {
      to[e] = from_float<dtype_t>(normal(bits(stream, 0, 0, 0, e)));
    }
  }

  // Fills the keys that each query sees in the rows of a bias. Queries that share a row fill it
  // with the same.
  __device__ void fill_bias(const Sequence& s, long long begin) const {
    for (long long i = begin; i < s.queries; i += gridDim.x) {
      const Seen visible = seen_by(i, s.queries, s.keys, window);
      for (long long head = 0; head < bias_rows.heads; ++head) {
        const unsigned long long row = bias_row(s, head, i);
        const long long to = bias_rows.place(s.number, head, i);
        for (long long j = visible.first + threadIdx.x; j < visible.end; j += blockDim.x) {
          if (seen) seen[to + j] = shows(row, j);
          if (bias) bias[to + j] = from_float<bias_dtype_t>(bias_of(row, j));
        }
      }
    }
  }

  __device__ float unseen() const { return set == kNan ? not_a_number() : kUnseen; }

  __device__ void fill_keys(const Sequence& s, const Order& order, long long begin) const {
    if (s.queries == 0) return;
    const long long first = seen_by(max(0ll, s.queries - s.keys), s.queries, s.keys, window).first;
    const long long last = !kAppends ? s.keys : kPaged ? ceil_div(s.keys, page) * page : kv_len;
    for (long long j = (kAppends ? 0 : first) + begin; j < last; j += gridDim.x) {
      const bool is_seen = !kAppends || (j >= first && j < s.keys - 1);
      long long entry = kRagged ? 0 : s.number;
      long long token = kRagged ? s.kv_first + j : j;
      long long tokens = kRagged ? kv_total : kv_len;
      if (kPaged) {
        entry = order(s.page_first + j / page);
        token = j % page;
        tokens = page;
      }
      if (k) {
        fill(k, entry, token, tokens, kv_heads, head_dim, ldk,
             [&](long long head, long long d) { return is_seen ? key(s, j, head, d) : unseen(); });
      }
      if (v) {
        fill(v, entry, token, tokens, kv_heads, head_dim_v, ldv, [&](long long head, long long d) {
          return is_seen ? value(s, j, head, d) : unseen();
        });
      }
    }
  }

  // Fills the pages of the pool that no table names, from the `first` one on.
  __device__ void fill_unused_pages(const Order& order, long long first) const {
    const auto element = [&](long long, long long) { return unseen(); };
    for (long long i = first + blockIdx.x; i < pages; i += gridDim.x) {
      for (long long token = 0; token < page; ++token) {
        if (k) fill(k, order(i), token, page, kv_heads, head_dim, ldk, element);
        if (v) fill(v, order(i), token, page, kv_heads, head_dim_v, ldv, element);
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
    const Order row_order(hash_at(seed, kRows), table_sequences);
    const long long row = kGivenRows ? row_order(s.number) : s.number;
    if (table_rows) table_rows[s.number] = static_cast<int>(row);
    const long long used = ceil_div(s.keys, page);
    if (page_offsets) {
      page_offsets[s.number] = static_cast<int>(s.page_first);
      page_offsets[s.number + 1] = static_cast<int>(s.page_first + used);
    }
    for (long long c = 0; c < ceil_div(kv_len, page); ++c) {
      const int of_column = c < used ? static_cast<int>(order(s.page_first + c)) : kNoPage;
      if (page_table) page_table[row * ld_table + c] = of_column;
      if (page_list && c < used) page_list[s.page_first + c] = of_column;
    }
  }

  __device__ void fill_heads() const {
    for (long long head = threadIdx.x; head < heads; head += blockDim.x) {
      const bool no_sink = set == kCount && head % 4 == 1;
      if (sinks)
        sinks[head] = no_sink ? __int_as_float(0xff800000) : normal(bits(kSink, 0, 0, head, 0));
      // Slopes as ALiBi has them; in an exact set they are too small to matter.
      const float slope = exp2f(-8.0f * static_cast<float>(head + 1) / static_cast<float>(heads));
      if (slopes) slopes[head] = set == kExact ? slope * 0x1p-20f : slope;
    }
  }

  // Fills one scale for each sequence and head of k.
  __device__ void fill_scales(float* scales, Stream stream) const {
    if (!scales) return;
    for (long long i = threadIdx.x; i < batch * kv_heads; i += blockDim.x) {
      const unsigned long long random = bits(stream, 0, 0, i, 0);
      // In an exact set scales are powers of two, and not below 1: logits stay far from each other.
      scales[i] = set == kExact ? static_cast<float>(1 << random % 3)
                                : 0.5f + 1.5f * static_cast<float>(random >> 40) * 0x1p-24f;
    }
  }

  // Returns a sequence with its number of queries and keys.
  __device__ Sequence sized(long long number, const Order& order) const {
    const long long rank = order(number);
    Sequence s;
    s.number = number;
    s.queries = Lengths{batch, q_total, q_len}(rank);
    s.keys = Lengths{batch, kv_total, min(kv_len, kv_total)}(rank);
    if ((set == kExact || set == kCount) && (lengths == lengths_kv || kPaged) &&
        lengths != lengths_full) {
      s.keys = min(s.keys, edge(bits(kLength, s.number, 0, 0, 0), page, s.keys));
    }
    return s;
  }

  __device__ void fill_work(const Order& order) const {
    if (!work) return;
    for (long long slot = threadIdx.x; slot < slots; slot += blockDim.x) {
      write_entry(work + slot * 8, slot, slots, batch, [&](long long number) {
        const Sequence s = sized(number, order);
        return Demand(static_cast<int>(s.queries), static_cast<int>(s.keys),
                      static_cast<int>(window));
      });
    }
  }

  __device__ void run() const {
    const Order sequence_order(hash_at(seed, kOrder), batch);
    const Order page_order(hash_at(seed, kPages), pages);
    if (blockIdx.x == 0) {
      fill_heads();
      fill_scales(q_descale, kQueryScale);
      fill_scales(k_descale, kKeyScale);
      fill_scales(v_descale, kValueScale);
      fill_work(sequence_order);
      fill_weights(q_norm, kQueryNorm);
      fill_weights(k_norm, kKeyNorm);
    }
    fill_angles(cosine, kCosine);
    fill_angles(sine, kSine);
    Sequence s;
    for (; s.number < batch; ++s.number) {
      const Sequence size_of = sized(s.number, sequence_order);
      s.queries = size_of.queries;
      s.keys = size_of.keys;
      const long long begin = (blockIdx.x + s.number) % gridDim.x;
      if (q) fill_queries(s, begin);
      if (seen || bias) fill_bias(s, begin);
      if (k || v) fill_keys(s, page_order, begin);
      if (begin == 0) fill_new_token(s);
      if (blockIdx.x == 0 && threadIdx.x == 0) fill_tables(s, page_order);
      s.q_first += s.queries;
      s.kv_first += s.keys;
      s.page_first += ceil_div(s.keys, page);
    }
    if (kAppends && kPaged) fill_unused_pages(page_order, s.page_first);
  }
};

// Tensors that the problem lacks are null here already, so that no code is made for them: the
// kernels compile in a quarter of the time.
#define DRAW(set)                                                                \
  Draw{set,                                                                      \
       static_cast<unsigned long long>(seed),                                    \
       q,                                                                        \
       k,                                                                        \
       v,                                                                        \
       kAppends ? k_new : nullptr,                                               \
       kAppends ? v_new : nullptr,                                               \
       kNorms ? q_norm : nullptr,                                                \
       kNorms ? k_norm : nullptr,                                                \
       kAppends ? cosine : nullptr,                                              \
       kAppends ? sine : nullptr,                                                \
       kRagged ? q_offsets : nullptr,                                            \
       kRagged && !kPaged ? kv_offsets : nullptr,                                \
       lengths == lengths_kv || (kRagged && kPaged) ? kv_lengths : nullptr,      \
       kGivenRows ? table_rows : nullptr,                                        \
       kPaged && !kListed ? page_table : nullptr,                                \
       kListed ? page_offsets : nullptr,                                         \
       kListed ? page_list : nullptr,                                            \
       sink == sink_head ? sinks : nullptr,                                      \
       config::bias == bias_alibi ? slopes : nullptr,                            \
       descale == descale_head && dtype == dtype_fp8_e4m3 ? q_descale : nullptr, \
       descale == descale_head ? k_descale : nullptr,                            \
       descale == descale_head ? v_descale : nullptr,                            \
       schedule == schedule_given ? work : nullptr,                              \
       config::bias == bias_boolean ? seen : nullptr,                            \
       config::bias == bias_additive ? bias : nullptr,                           \
       batch,                                                                    \
       heads,                                                                    \
       kv_heads,                                                                 \
       q_len,                                                                    \
       kv_len,                                                                   \
       head_dim,                                                                 \
       head_dim_v,                                                               \
       q_total,                                                                  \
       kv_total,                                                                 \
       page,                                                                     \
       pages,                                                                    \
       table_sequences,                                                          \
       ld_table,                                                                 \
       window,                                                                   \
       slots,                                                                    \
       ldq,                                                                      \
       ldk,                                                                      \
       ldv,                                                                      \
       ldk_new,                                                                  \
       ldv_new,                                                                  \
       bias_batch,                                                               \
       bias_heads,                                                               \
       bias_q,                                                                   \
       ldbias_batch,                                                             \
       ldbias_head,                                                              \
       ldbias}                                                                   \
      .run()

// Draws normal numbers everywhere.
extern "C" __global__ void attention_timing(KW_PARAMETERS(attention_timing)) { DRAW(kTiming); }

// Draws keys that are signs, and queries that are 16 times a key that they see. Beside e^(this
// key's logit) all others vanish, and the result is the value of that key to the last bit.
extern "C" __global__ void attention_exact(KW_PARAMETERS(attention_exact)) { DRAW(kExact); }

// Draws inputs for which all logits of a query are equal: the result is the mean of the values that
// it sees, and its lse the logarithm of their number.
extern "C" __global__ void attention_count(KW_PARAMETERS(attention_count)) { DRAW(kCount); }

// Draws normal numbers, with NaN: in one of 256 queries, in one of 1024 keys and one of 32 values
// near the end of a sequence, and in every second one of its last four values, which only some
// queries see.
extern "C" __global__ void attention_nan(KW_PARAMETERS(attention_nan)) { DRAW(kNan); }
