#include "sequences.cuh"

using namespace kernwright;
using namespace kernwright::config;

constexpr int kPerLane = 8;  // columns of v that a lane sums at a time
constexpr double kLn2 = 0.69314718055994530942;

__device__ double minus_infinity() { return __longlong_as_double(0xfff0000000000000ll); }

// To all lanes.
__device__ double warp_sum(double part) {
  for (int lane = 16; lane > 0; lane /= 2) part += __shfl_xor_sync(~0u, part, lane);
  return part;
}

// One warp for a query of a head, all in fp64 and in two passes over the keys that it sees: for the
// largest logit, and for the sums. What it does not see is not read. value and magnitude are
// contiguous: o as [.., head_dim_v] in the layout's order, lse as [.., heads, tokens].
//
// fp8 tensors are multiplied by their scales, those of all or those of a sequence and head of k.
//
// o_value is the result, 0 where nothing is seen; o_magnitude = sum p |v|. lse_value is the
// logarithm of the sum of all e^logit, the sink included, minus infinity where there is none. An
// error of a logit is one of the result, so lse_magnitude = 1 + |max| + sum p scale sum |q k|.
extern "C" __global__ void attention_reference(
    const dtype_t* q, const kv_t* k, const kv_t* v, const int* q_offsets, const int* kv_offsets,
    const int* kv_lengths, const int* page_table, const float* sinks, const float* slopes,
    const float* q_descale, const float* k_descale, const float* v_descale, float* o_value,
    float* o_magnitude, float* lse_value, float* lse_magnitude, long long sequences,
    long long q_heads, long long k_heads, long long longest_q, long long longest_kv, long long size,
    long long size_v, long long tokens, long long k_tokens, long long page_size, long long columns,
    long long width, long long pitch_q, long long pitch_k, long long pitch_v, float scale,
    float cap, float q_scale, float k_scale, float v_scale) {
  const long long lane = threadIdx.x % 32;
  const bool is_ragged = lengths == lengths_ragged;
  const long long all_tokens = is_ragged ? tokens : sequences * tokens;
  const long long warps = static_cast<long long>(gridDim.x) * (blockDim.x / 32);
  for (long long row = static_cast<long long>(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
       row < all_tokens * q_heads; row += warps) {
    const long long head = row % q_heads;
    const long long k_head = head / (q_heads / k_heads);
    long long entry = row / q_heads / tokens;
    const long long token = row / q_heads % tokens;
    long long sequence = entry;
    long long i = token;
    long long queries = longest_q;
    if (is_ragged) {
      for (sequence = 0; q_offsets[sequence + 1] <= token;) ++sequence;
      i = token - q_offsets[sequence];
      queries = q_offsets[sequence + 1] - q_offsets[sequence];
    }
    long long keys = longest_kv;
    if (kv_lengths) keys = kv_lengths[sequence];
    if (kv_offsets) keys = kv_offsets[sequence + 1] - kv_offsets[sequence];
    const Seen seen = seen_by(i, queries, keys, width);
    const long long position = i + keys - queries;

    const long long scale_at = sequence * k_heads + k_head;
    double unit_of_logits = scale;
    double unit_of_values = 1;
    if constexpr (descale == descale_tensor) {
      unit_of_logits *= static_cast<double>(q_scale) * k_scale;
      unit_of_values = v_scale;
    }
    if constexpr (descale == descale_head) {
      unit_of_logits *=
          static_cast<double>(q_descale ? q_descale[scale_at] : 1) * k_descale[scale_at];
      unit_of_values = v_descale[scale_at];
    }

    // Where the elements of a key begin, in k or in v.
    const auto key_at = [&](long long j, long long own_size, long long pitch) {
      if (cache == cache_paged) {
        const long long used = page_table[sequence * columns + j / page_size];
        return place_of(used, j % page_size, k_head, page_size, k_heads, own_size, pitch);
      }
      const long long first = is_ragged ? kv_offsets[sequence] : 0;
      return place_of(is_ragged ? 0 : sequence, first + j, k_head, k_tokens, k_heads, own_size,
                      pitch);
    };
    const dtype_t* const query = q + place_of(entry, token, head, tokens, q_heads, size, pitch_q);
    double terms = 0;  // of the last logit, without their signs
    const auto logit = [&](long long j) {
      const kv_t* const key = k + key_at(j, size, pitch_k);
      double dot = 0;
      terms = 0;
      for (long long d = lane; d < size; d += 32) {
        const double product = static_cast<double>(to_float(query[d])) * to_float(key[d]);
        dot += product;
        terms += fabs(product);
      }
      terms = fabs(unit_of_logits) * warp_sum(terms);
      double s = unit_of_logits * warp_sum(dot);
      if constexpr (softcap == softcap_tanh) s = cap * tanh(s / cap);
      if constexpr (bias == bias_alibi) {
        s -= static_cast<double>(slopes[head]) * fabs(static_cast<double>(position - j));
      }
      return s;
    };

    double most = minus_infinity();
    if constexpr (sink == sink_head) most = sinks[head];
    for (long long j = seen.first; j < seen.end; ++j) most = larger(most, logit(j));
    const bool nothing = seen.first >= seen.end && most == minus_infinity();

    const long long own = place_of(entry, token, head, tokens, q_heads, size_v,
                                   layout == layout_bshd ? q_heads * size_v : size_v);
    double sum = 0;
    double exponents = 0;
    for (long long first = 0; first < size_v; first += 32 * kPerLane) {
      double part[kPerLane] = {};
      double absolute[kPerLane] = {};
      sum = 0;
      exponents = 0;
      if constexpr (sink == sink_head) sum = exp(sinks[head] - most);
      for (long long j = seen.first; j < seen.end; ++j) {
        const double p = exp(logit(j) - most);
        sum += p;
        exponents += p * terms;
        const kv_t* const values = v + key_at(j, size_v, pitch_v);
        for (int c = 0; c < kPerLane; ++c) {
          const long long d = first + lane + 32 * c;
          if (d >= size_v) continue;
          part[c] += p * to_float(values[d]);
          absolute[c] += p * fabsf(to_float(values[d]));
        }
      }
      for (int c = 0; c < kPerLane; ++c) {
        const long long d = first + lane + 32 * c;
        if (d >= size_v) continue;
        o_value[own + d] = nothing ? 0.0f : static_cast<float>(unit_of_values * part[c] / sum);
        o_magnitude[own + d] =
            nothing ? 0.0f : static_cast<float>(fabs(unit_of_values) * absolute[c] / sum);
      }
    }
    if (lse == lse_none || lane != 0) continue;
    const double unit = lse == lse_base2 ? kLn2 : 1.0;
    const long long place = (entry * q_heads + head) * tokens + token;
    lse_value[place] = static_cast<float>(nothing ? minus_infinity() : (most + log(sum)) / unit);
    lse_magnitude[place] =
        nothing ? 1.0f : static_cast<float>((1 + fabs(most) + exponents / sum) / unit);
  }
}
