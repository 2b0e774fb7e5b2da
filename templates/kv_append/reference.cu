#include <kernwright/attention/places.cuh>
#include <kernwright/math/types.cuh>
#include <kernwright/rope/rotation_reference.cuh>

using namespace kernwright;
using namespace kernwright::config;

using Head = HeadToRotate<kernwright::config::norm == norm_rms>;  // CUDA has a norm of its own

// A new token: the number of its sequence, its place among all new tokens, and its position, which
// is negative if the sequence has fewer keys than new tokens.
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
extern "C" __global__ void kv_append_reference(
    const dtype_t* q, const dtype_t* k, const dtype_t* v, const dtype_t* q_norm,
    const dtype_t* k_norm, const float* cosine, const float* sine, const int* q_offsets,
    const int* kv_offsets, const int* kv_lengths, const int* page_table, const kv_t* k_cache,
    const kv_t* v_cache, float* q_value, float* q_magnitude, float* k_value, float* k_magnitude,
    float* v_value, float* v_magnitude, long long sequences, long long q_heads, long long k_heads,
    long long longest_q, long long longest_kv, long long size, long long size_v, long long tokens,
    long long entries, long long entry_tokens, long long page_size, long long columns,
    long long pitch_q, long long pitch_k, long long pitch_v, long long pitch_k_cache,
    long long pitch_v_cache, float k_scale, float v_scale, float eps) {
  const bool is_ragged = lengths == lengths_ragged;
  const Batch batch{q_offsets, kv_offsets, kv_lengths, sequences, longest_q, longest_kv};
  // Returns the first element of a head of a new token in q, k or v.
  const auto from = [&](const Token& token, long long head, long long all_heads, long long own_size,
                        long long pitch) {
    return place_of(is_ragged ? 0 : token.sequence, token.place % tokens, head, tokens, all_heads,
                    own_size, pitch);
  };
  const auto pitch_of = [](long long all_heads, long long own_size) {
    return layout == layout_bshd ? all_heads * own_size : own_size;
  };

  if constexpr (rope == rope_qk) {
    for (long long i = blockIdx.x; i < batch.first(sequences); i += gridDim.x) {
      const Token token = batch.token(i);
      const long long angles = (token.position < 0 ? 0 : token.position) * (size / 2);
      for (long long e = threadIdx.x; e < q_heads * size; e += blockDim.x) {
        const long long to =
            from(token, e / size, q_heads, size, pitch_of(q_heads, size)) + e % size;
        const Head query(q + from(token, e / size, q_heads, size, pitch_q), q_norm, size, eps);
        rotate(query, cosine + angles, sine + angles, size, e % size, q_value + to,
               q_magnitude + to);
      }
    }
  }

  __shared__ Token shared_token;
  for (long long place = blockIdx.x; place < entries * entry_tokens; place += gridDim.x) {
    const long long entry = place / entry_tokens;
    const long long entry_token = place % entry_tokens;
    __syncthreads();
    if (threadIdx.x == 0) shared_token = {0, 0, -1};
    __syncthreads();
    if constexpr (cache == cache_paged) {
      for (long long c = threadIdx.x; c < sequences * columns; c += blockDim.x) {
        const Token found = batch.token_at(c / columns, c % columns * page_size + entry_token);
        if (found.position >= 0 && page_table[c] == entry) shared_token = found;
      }
    } else {
      for (long long s = threadIdx.x; s < sequences; s += blockDim.x) {
        if (!is_ragged && s != entry) continue;
        const Token found = batch.token_at(s, entry_token - (is_ragged ? kv_offsets[s] : 0));
        if (found.position >= 0) shared_token = found;
      }
    }
    __syncthreads();
    const Token token = shared_token;
    const long long angles = token.position * (size / 2);
    for (long long e = threadIdx.x; e < k_heads * size; e += blockDim.x) {
      const long long head = e / size;
      const long long d = e % size;
      const long long to =
          place_of(entry, entry_token, head, entry_tokens, k_heads, size, pitch_of(k_heads, size)) +
          d;
      if (token.position < 0) {
        k_value[to] = to_float(
            k_cache[place_of(entry, entry_token, head, entry_tokens, k_heads, size, pitch_k_cache) +
                    d]);
        k_magnitude[to] = 0;
        continue;
      }
      const dtype_t* const key = k + from(token, head, k_heads, size, pitch_k);
      float value = to_float(key[d]);
      float magnitude = fabsf(value);
      if constexpr (rope != rope_none) {
        rotate(Head(key, k_norm, size, eps), cosine + angles, sine + angles, size, d, &value,
               &magnitude);
      }
      k_value[to] = kv == kv_fp8_e4m3 ? value / k_scale : value;
      k_magnitude[to] = kv == kv_fp8_e4m3 ? magnitude / k_scale : magnitude;
    }
    for (long long e = threadIdx.x; e < k_heads * size_v; e += blockDim.x) {
      const long long head = e / size_v;
      const long long d = e % size_v;
      const long long to = place_of(entry, entry_token, head, entry_tokens, k_heads, size_v,
                                    pitch_of(k_heads, size_v)) +
                           d;
      if (token.position < 0) {
        v_value[to] = to_float(v_cache[place_of(entry, entry_token, head, entry_tokens, k_heads,
                                                size_v, pitch_v_cache) +
                                       d]);
        v_magnitude[to] = 0;
        continue;
      }
      const float value = to_float(v[from(token, head, k_heads, size_v, pitch_v) + d]);
      v_value[to] = kv == kv_fp8_e4m3 ? value / v_scale : value;
      v_magnitude[to] = fabsf(v_value[to]);
    }
  }
}
