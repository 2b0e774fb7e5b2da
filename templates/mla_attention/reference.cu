#include "sequences.cuh"

using namespace kernwright;
using namespace kernwright::config;

constexpr int kWarps = 8;     // of a block, each with a query of its own
constexpr int kKeys = 32;     // of a tile: each lane has one
constexpr int kColumns = 16;  // of o, that a lane sums at a time
constexpr int kSummed = 16;   // products that are summed in fp32
constexpr double kLn2 = 0.69314718055994530942;

__device__ double minus_infinity() { return __longlong_as_double(0xfff0000000000000ll); }

__device__ double warp_sum(double part) {
  for (int lane = 16; lane > 0; lane /= 2) part += __shfl_xor_sync(~0u, part, lane);
  return part;
}
__device__ double warp_largest(double part) {
  for (int lane = 16; lane > 0; lane /= 2) {
    part = larger(part, __shfl_xor_sync(~0u, part, lane));
  }
  return part;
}

// A sum of products, in fp64 over parts in fp32, with the sum of the absolute products.
struct Dot {
  double sum = 0, terms = 0;

  __device__ void add(const dtype_t* x, const dtype_t* y, long long size) {
    for (long long first = 0; first < size; first += kSummed) {
      float part = 0, absolute = 0;
      for (long long d = first; d < min(size, first + kSummed); ++d) {
        const float product = to_float(x[d]) * to_float(y[d]);
        part += product;
        absolute += fabsf(product);
      }
      sum += part;
      terms += absolute;
    }
  }
};

// A warp takes a query of a head, with keys in tiles of 32 and an online softmax in double
// precision.
extern "C" __global__ void __launch_bounds__(kWarps * 32)
    mla_attention_reference(KW_PARAMETERS(mla_attention_reference)) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const long long tokens = lengths == lengths_ragged ? q_tokens : batch * q_tokens;
  for (long long row = blockIdx.x * kWarps + threadIdx.x / 32; row < tokens * heads;
       row += gridDim.x * kWarps) {
    const long long token = row / heads, head = row % heads;
    long long sequence = token / q_tokens, i = token % q_tokens, queries = q_len;
    if (lengths == lengths_ragged) {
      sequence = 0;
      while (sequence < batch - 1 && token >= q_offsets[sequence + 1]) ++sequence;
      i = token - q_offsets[sequence];
      queries = q_offsets[sequence + 1] - q_offsets[sequence];
    }
    long long keys = kv_len, first_key = sequence * kv_tokens;
    if (lengths == lengths_ragged && cache_layout == cache_contiguous) {
      first_key = kv_offsets[sequence];
      keys = kv_offsets[sequence + 1] - first_key;
    } else if (lengths != lengths_full) {
      keys = kv_lengths[sequence];
    }
    const auto token_of = [&](long long j) {
      if (cache_layout == cache_contiguous) return first_key + j;
      return page_table[sequence * ld_table + j / page] * page + j % page;
    };
    const long long end = end_of_query(i, queries, keys);
    const long long own_width = query == query_split ? latent : latent + rope_width;
    const dtype_t* const own = q + token * ldq + head * own_width;
    const dtype_t* const own_rope =
        query == query_split ? q_rope + token * ldq_rope + head * rope_width : own + latent;
    double most = minus_infinity(), sum = 0, exponents = 0;
    for (long long first = 0; first < latent; first += 32 * kColumns) {
      double part[kColumns] = {}, absolute[kColumns] = {};
      most = sink == sink_head ? static_cast<double>(sinks[head]) : minus_infinity();
      sum = sink == sink_head && lane == 0 ? 1 : 0;
      exponents = 0;
      for (long long tile = 0; tile < end; tile += kKeys) {
        const int count = static_cast<int>(min(static_cast<long long>(kKeys), end - tile));
        const bool exists = lane < count;
        long long place = 0;
        double s = minus_infinity(), terms = 0;
        if (exists) {
          place = token_of(tile + lane);
          Dot dot;
          dot.add(own, cache + place * ld_cache, latent);
          if (rope_width > 0) {
            dot.add(own_rope,
                    config::keys == keys_apart ? rope_cache + place * ld_rope
                                               : cache + place * ld_cache + latent,
                    rope_width);
          }
          s = scale * dot.sum;
          terms = fabs(static_cast<double>(scale)) * dot.terms;
        }
        const double before = most;
        most = larger(most, warp_largest(s));
        const double factor = before == most ? 1 : exp(before - most);
        const double p = exists ? exp(s - most) : 0;
        sum = sum * factor + p;
        exponents = exponents * factor + (p == 0 ? 0 : p * terms);
        for (int c = 0; c < kColumns; ++c) {
          part[c] *= factor;
          absolute[c] *= factor;
        }
        for (int n = 0; n < count; ++n) {
          const double weight = __shfl_sync(~0u, p, n);
          const long long from = __shfl_sync(~0u, place, n);
          for (int c = 0; c < kColumns; ++c) {
            const long long d = first + 32 * c + lane;
            if (d >= latent) continue;
            const double value = weight * static_cast<double>(to_float(cache[from * ld_cache + d]));
            part[c] += value;
            absolute[c] += fabs(value);
          }
        }
      }
      const double whole = warp_sum(sum);
      for (int c = 0; c < kColumns; ++c) {
        const long long d = first + 32 * c + lane;
        if (d >= latent) continue;
        const bool nothing = most == minus_infinity();
        o_reference[row * latent + d] = nothing ? 0.0f : static_cast<float>(part[c] / whole);
        o_magnitude[row * latent + d] = nothing ? 0.0f : static_cast<float>(absolute[c] / whole);
      }
    }
    if (lse == lse_none) continue;
    sum = warp_sum(sum);
    exponents = warp_sum(exponents);
    if (lane != 0) continue;
    const bool nothing = most == minus_infinity();
    const double unit = lse == lse_base2 ? kLn2 : 1.0;
    const long long entry = token / q_tokens;
    const long long to = (entry * heads + head) * q_tokens + token % q_tokens;
    lse_reference[to] = static_cast<float>(nothing ? minus_infinity() : (most + log(sum)) / unit);
    lse_magnitude[to] =
        nothing ? 1.0f : static_cast<float>((1 + fabs(most) + exponents / sum) / unit);
  }
}
