#include <kernwright/attention/drawing.cuh>
#include <kernwright/attention/places.cuh>
#include <kernwright/math/types.cuh>

using namespace kernwright;
using namespace kernwright::config;

enum Set { kTiming, kExact, kNan };
// Streams of random numbers: each quantity has its own.
enum Stream {
  kQuery,
  kKey,
  kValue,
  kCosine,
  kSine,
  kKeyCache,
  kValueCache,
  kLength,
  kOrder,
  kPages,
  kQueryNorm,
  kKeyNorm,
  kPlaces
};

constexpr bool kRagged = lengths == lengths_ragged;
constexpr bool kPaged = cache == cache_paged;
constexpr bool kPlaced = config::places == places_given;

struct Draw {
  Set set;
  unsigned long long seed;
  dtype_t *q, *k, *v, *q_norm, *k_norm;
  float *cosine, *sine;
  int *q_offsets, *kv_offsets, *kv_lengths, *page_table;
  long long* places;
  kv_t *k_cache, *v_cache;
  long long batch, heads, kv_heads, q_len, kv_len, head_dim, head_dim_v, q_total, kv_total;
  long long page, pages, ldq, ldk, ldv, ldk_cache, ldv_cache;

  __device__ unsigned long long bits(Stream stream, long long place) const {
    return hash_at(hash_at(seed, stream), static_cast<unsigned long long>(place));
  }
  // Returns a normal number, seldom NaN, or a whole number of at most `largest` on either side of
  // 0.
  __device__ float number(Stream stream, long long place, int largest) const {
    const unsigned long long random = bits(stream, place);
    if (set == kNan && random % 1021 == 0) return NAN;
    if (set != kExact) return normal(random);
    return static_cast<float>(random % static_cast<unsigned>(2 * largest + 1)) -
           static_cast<float>(largest);
  }

  // Fills the heads of a token with the threads of the block; `number_of_token` counts tokens.
  template <typename T>
  __device__ void fill(T* to, Stream stream, long long number_of_token, long long entry,
                       long long token, long long tokens, long long all_heads, long long own_size,
                       long long pitch) const {
    if (!to) return;
    for (long long e = threadIdx.x; e < all_heads * own_size; e += blockDim.x) {
      const long long at = place_of(entry, token, e / own_size, tokens, all_heads, own_size, pitch);
      to[at + e % own_size] =
          from_float<T>(number(stream, number_of_token * all_heads * own_size + e, 3));
    }
  }

  // Fills all of a cache, the unused places too: elements that no new token overwrites must stay.
  __device__ void fill_caches() const {
    const long long entries = kPaged ? pages : kRagged ? 1 : batch;
    const long long tokens = kPaged ? page : kRagged ? kv_total : kv_len;
    for (long long i = blockIdx.x; i < entries * tokens; i += gridDim.x) {
      fill(k_cache, kKeyCache, i, i / tokens, i % tokens, tokens, kv_heads, head_dim, ldk_cache);
      fill(v_cache, kValueCache, i, i / tokens, i % tokens, tokens, kv_heads, head_dim_v,
           ldv_cache);
    }
  }

  // The angles of an exact set are so small that an 8-bit cache holds the results.
  __device__ void fill_angles(float* to, Stream stream) const {
    if (!to) return;
    for (long long i = blockIdx.x; i < kv_len; i += gridDim.x) {
      for (long long e = threadIdx.x; e < head_dim / 2; e += blockDim.x) {
        to[i * (head_dim / 2) + e] = number(stream, i * (head_dim / 2) + e, 1);
      }
    }
  }

  // Fills weights, never with NaN: a weight that is NaN would leave no head a number.
  __device__ void fill_weights(dtype_t* to, Stream stream) const {
    if (!to || blockIdx.x > 0) return;
    for (long long e = threadIdx.x; e < head_dim; e += blockDim.x) {
      to[e] = from_float<dtype_t>(normal(bits(stream, e)));
    }
  }

  // Returns the place that new token `i` is given, -1 if it goes nowhere.
  __device__ long long place(const Order& order, long long i) const {
    const bool has_none = set != kTiming && bits(kPlaces, i) % 8 == 0;
    return has_none || i >= kv_len ? -1 : order(i);
  }

  __device__ void run() const {
    if (k_cache || v_cache) return fill_caches();
    fill_angles(cosine, kCosine);
    fill_angles(sine, kSine);
    fill_weights(q_norm, kQueryNorm);
    fill_weights(k_norm, kKeyNorm);
    const Order sequence_order(hash_at(seed, kOrder), batch);
    const Order page_order(hash_at(seed, kPages), pages);
    const Lengths q_lengths{batch, q_total, q_len};
    const Lengths k_lengths{batch, kv_total, min(kv_len, kv_total)};
    long long q_first = 0;
    long long kv_first = 0;
    long long page_first = 0;
    for (long long s = 0; s < batch; ++s) {
      const long long rank = sequence_order(s);
      const long long queries = q_lengths(rank);
      long long keys = k_lengths(rank);
      if (set != kTiming && (lengths == lengths_kv || (kRagged && kPaged))) {
        keys = min(keys, edge(bits(kLength, s), page, keys));
      }
      for (long long i = (blockIdx.x + s) % gridDim.x; i < queries; i += gridDim.x) {
        const long long entry = kRagged ? 0 : s;
        const long long token = kRagged ? q_first + i : i;
        const long long tokens = kRagged ? q_total : q_len;
        fill(q, kQuery, q_first + i, entry, token, tokens, heads, head_dim, ldq);
        if (places && threadIdx.x == 0) places[i] = place(page_order, i);
        // The content of a token without a place in the cache does not count.
        if (kPlaced ? place(page_order, i) < 0 : i + keys < queries) continue;
        fill(k, kKey, q_first + i, entry, token, tokens, kv_heads, head_dim, ldk);
        fill(v, kValue, q_first + i, entry, token, tokens, kv_heads, head_dim_v, ldv);
      }
      if (blockIdx.x == 0 && threadIdx.x == 0) {
        if (q_offsets) q_offsets[s] = static_cast<int>(q_first);
        if (q_offsets) q_offsets[s + 1] = static_cast<int>(q_first + queries);
        if (kv_offsets) kv_offsets[s] = static_cast<int>(kv_first);
        if (kv_offsets) kv_offsets[s + 1] = static_cast<int>(kv_first + keys);
        if (kv_lengths) kv_lengths[s] = static_cast<int>(keys);
        const long long columns = ceil_div(kv_len, page);
        for (long long c = 0; page_table && c < columns; ++c) {
          page_table[s * columns + c] =
              c < ceil_div(keys, page) ? static_cast<int>(page_order(page_first + c)) : kNoPage;
        }
      }
      q_first += queries;
      kv_first += keys;
      page_first += ceil_div(keys, page);
    }
  }
};

// Tensors that the problem lacks are null here already, so that no code is made for them.
#define DRAW(set)                                                           \
  Draw{set,                                                                 \
       static_cast<unsigned long long>(seed),                               \
       rope == rope_qk ? q : nullptr,                                       \
       k,                                                                   \
       v,                                                                   \
       rope == rope_qk && config::norm == norm_rms ? q_norm : nullptr,      \
       config::norm == norm_rms ? k_norm : nullptr,                         \
       rope != rope_none ? cosine : nullptr,                                \
       rope != rope_none ? sine : nullptr,                                  \
       kRagged ? q_offsets : nullptr,                                       \
       kRagged && !kPaged ? kv_offsets : nullptr,                           \
       lengths == lengths_kv || (kRagged && kPaged) ? kv_lengths : nullptr, \
       kPaged ? page_table : nullptr,                                       \
       kPlaced ? places : nullptr,                                          \
       k_cache,                                                             \
       v_cache,                                                             \
       batch,                                                               \
       heads,                                                               \
       kv_heads,                                                            \
       q_len,                                                               \
       kv_len,                                                              \
       head_dim,                                                            \
       head_dim_v,                                                          \
       q_total,                                                             \
       kv_total,                                                            \
       page,                                                                \
       pages,                                                               \
       ldq,                                                                 \
       ldk,                                                                 \
       ldv,                                                                 \
       ldk_cache,                                                           \
       ldv_cache}                                                           \
      .run()

// Draws normal numbers everywhere.
extern "C" __global__ void kv_append_timing(KW_PARAMETERS(kv_append_timing)) { DRAW(kTiming); }

// Draws small whole numbers. Sequences have lengths at which kernels change their path, and some
// have fewer keys than new tokens.
extern "C" __global__ void kv_append_exact(KW_PARAMETERS(kv_append_exact)) { DRAW(kExact); }

// Draws normal numbers with some NaN, and sequences of lengths as in the exact set, which
// normalised heads do not have.
extern "C" __global__ void kv_append_nan(KW_PARAMETERS(kv_append_nan)) { DRAW(kNan); }
