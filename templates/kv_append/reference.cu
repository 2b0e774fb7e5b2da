#include <kernwright/attention/places.cuh>
#include <kernwright/math/types.cuh>
#include <kernwright/rope/rotation_reference.cuh>

using namespace kernwright;
using namespace kernwright::config;

using Head = HeadToRotate<kernwright::config::norm == norm_rms>;  // CUDA has a norm of its own

// A new token: the number of its sequence, its place among all new tokens, and its position, which
// is negative if the token goes nowhere, and anything else if its place is given.
struct Token {
  long long sequence, place, position;
};

// The sequences of a launch.
struct Batch {
  const int *q_offsets, *kv_offsets, *kv_lengths;
  long long count, longest_q, longest_kv;

  __device__ long long first(long long sequence) const {
    return q_offsets ? q_offsets[sequence] : sequence * longest_q;
  }
  __device__ long long keys(long long sequence) const {
    if (kv_lengths) return kv_lengths[sequence];
    return kv_offsets ? kv_offsets[sequence + 1] - kv_offsets[sequence] : longest_kv;
  }
  __device__ Token token(long long place) const {
    long long sequence = 0;
    while (first(sequence + 1) <= place) ++sequence;
    return {sequence, place, keys(sequence) - (first(sequence + 1) - place)};
  }
  // Returns the new token at a position of a sequence; its position is -1 if no new token is there.
  __device__ Token token_at(long long sequence, long long position) const {
    const long long place = first(sequence + 1) - keys(sequence) + position;
    const bool is_new = position >= 0 && position < keys(sequence) && place >= first(sequence);
    return {sequence, place, is_new ? position : -1};
  }
};

// Blocks go through the tokens for q_out, and then through the places of the cache, each of which
// has a new token or its old content. value and magnitude are contiguous. Elements of a cache of 8
// bits are divided by its scale.
extern "C" __global__ void kv_append_reference(KW_PARAMETERS(kv_append_reference)) {
  const bool is_ragged = lengths == lengths_ragged;
  const Batch all{q_offsets, kv_offsets, kv_lengths, batch, q_len, kv_len};
  // Returns the first element of a head of a new token in q, k or v.
  const auto from = [&](const Token& token, long long head, long long all_heads, long long own_size,
                        long long pitch) {
    return place_of(is_ragged ? 0 : token.sequence, token.place % q_tokens, head, q_tokens,
                    all_heads, own_size, pitch);
  };
  const auto pitch_of = [](long long all_heads, long long own_size) {
    return layout == layout_bshd ? all_heads * own_size : own_size;
  };

  if constexpr (rope == rope_qk) {
    for (long long i = blockIdx.x; i < all.first(batch); i += gridDim.x) {
      const Token token = all.token(i);
      const long long angles = (token.position < 0 ? 0 : token.position) * (head_dim / 2);
      for (long long e = threadIdx.x; e < heads * head_dim; e += blockDim.x) {
        const long long to =
            from(token, e / head_dim, heads, head_dim, pitch_of(heads, head_dim)) + e % head_dim;
        const Head query(q + from(token, e / head_dim, heads, head_dim, ldq), q_norm, head_dim,
                         eps);
        rotate(query, cosine + angles, sine + angles, head_dim, e % head_dim, q_out_reference + to,
               q_out_magnitude + to);
      }
    }
  }

  __shared__ Token shared_token;
  for (long long place = blockIdx.x; place < kv_batch * kv_tokens; place += gridDim.x) {
    const long long entry = place / kv_tokens;
    const long long entry_token = place % kv_tokens;
    __syncthreads();
    if (threadIdx.x == 0) shared_token = {0, 0, -1};
    __syncthreads();
    if constexpr (cache == cache_paged) {
      for (long long c = threadIdx.x; c < batch * table_columns; c += blockDim.x) {
        const Token found = all.token_at(c / table_columns, c % table_columns * page + entry_token);
        if (found.position >= 0 && page_table[c] == entry) shared_token = found;
      }
    } else if (config::places == places_given) {
      for (long long i = threadIdx.x; i < q_len; i += blockDim.x) {
        if (places[i] == entry_token) shared_token = {0, i, 0};
      }
    } else {
      for (long long s = threadIdx.x; s < batch; s += blockDim.x) {
        if (!is_ragged && s != entry) continue;
        const Token found = all.token_at(s, entry_token - (is_ragged ? kv_offsets[s] : 0));
        if (found.position >= 0) shared_token = found;
      }
    }
    __syncthreads();
    const Token token = shared_token;
    const long long angles = token.position * (head_dim / 2);
    for (long long e = threadIdx.x; e < kv_heads * head_dim; e += blockDim.x) {
      const long long head = e / head_dim;
      const long long d = e % head_dim;
      const long long to = place_of(entry, entry_token, head, kv_tokens, kv_heads, head_dim,
                                    pitch_of(kv_heads, head_dim)) +
                           d;
      if (token.position < 0) {
        k_cache_reference[to] = to_float(
            k_cache[place_of(entry, entry_token, head, kv_tokens, kv_heads, head_dim, ldk_cache) +
                    d]);
        k_cache_magnitude[to] = 0;
        continue;
      }
      const dtype_t* const key = k + from(token, head, kv_heads, head_dim, ldk);
      float value = to_float(key[d]);
      float magnitude = fabsf(value);
      if constexpr (rope != rope_none) {
        rotate(Head(key, k_norm, head_dim, eps), cosine + angles, sine + angles, head_dim, d,
               &value, &magnitude);
      }
      k_cache_reference[to] = kv == kv_fp8_e4m3 ? value / k_scale : value;
      k_cache_magnitude[to] = kv == kv_fp8_e4m3 ? magnitude / k_scale : magnitude;
    }
    for (long long e = threadIdx.x; e < kv_heads * head_dim_v; e += blockDim.x) {
      const long long head = e / head_dim_v;
      const long long d = e % head_dim_v;
      const long long to = place_of(entry, entry_token, head, kv_tokens, kv_heads, head_dim_v,
                                    pitch_of(kv_heads, head_dim_v)) +
                           d;
      if (token.position < 0) {
        v_cache_reference[to] = to_float(
            v_cache[place_of(entry, entry_token, head, kv_tokens, kv_heads, head_dim_v, ldv_cache) +
                    d]);
        v_cache_magnitude[to] = 0;
        continue;
      }
      const float value = to_float(v[from(token, head, kv_heads, head_dim_v, ldv) + d]);
      v_cache_reference[to] = kv == kv_fp8_e4m3 ? value / v_scale : value;
      v_cache_magnitude[to] = fabsf(v_cache_reference[to]);
    }
  }
}
