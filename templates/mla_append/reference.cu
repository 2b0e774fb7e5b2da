#include <kernwright/math/types.cuh>
#include <kernwright/rope/rotation_reference.cuh>

using namespace kernwright;
using namespace kernwright::config;

// Blocks go through the tokens for q_out, and then through the slots of the cache, each of which
// has a new token or its old content. Results are contiguous.
extern "C" __global__ void mla_append_reference(KW_PARAMETERS(mla_append_reference)) {
  using Normalised = HeadToRotate<true>;
  using Plain = HeadToRotate<false>;
  if constexpr (query == query_norm) {
    for (long long token = blockIdx.x; token < tokens; token += gridDim.x) {
      const Normalised row(x + token * ldx, q_norm, q_rank, q_eps);
      for (long long d = threadIdx.x; d < q_rank; d += blockDim.x) {
        q_out_reference[token * q_rank + d] = row[d];
        q_out_magnitude[token * q_rank + d] = fabsf(row[d]);
      }
    }
  }
  __shared__ long long shared_token;
  for (long long slot = blockIdx.x; slot < pool; slot += gridDim.x) {
    __syncthreads();
    if (threadIdx.x == 0) shared_token = -1;
    __syncthreads();
    for (long long i = threadIdx.x; i < tokens; i += blockDim.x) {
      if (slots[i] == slot) shared_token = i;
    }
    __syncthreads();
    const long long token = shared_token, at = token < 0 ? 0 : token;
    const dtype_t* const latents = x + at * ldx + query_width;
    const Normalised row(latents, kv_norm, latent, eps);
    const Plain rotated(latents + latent, nullptr, rope, 0);
    const long long turn = positions[at] * (rope / 2);
    for (long long d = threadIdx.x; d < latent + rope; d += blockDim.x) {
      const bool is_apart = config::keys == keys_apart && d >= latent;
      float value = 0, magnitude = 0;
      if (token < 0) {
        value = to_float(is_apart ? rope_cache[slot * ld_rope + d - latent]
                                  : cache[slot * ld_cache + d]);
      } else if (d < latent) {
        value = row[d];
        magnitude = fabsf(value);
      } else {
        rotate(rotated, cosine + turn, sine + turn, rope, d - latent, &value, &magnitude);
      }
      const long long to = is_apart ? slot * rope + d - latent : slot * cache_width + d;
      (is_apart ? rope_cache_reference : cache_reference)[to] = value;
      (is_apart ? rope_cache_magnitude : cache_magnitude)[to] = magnitude;
    }
  }
}
