#include <kernwright/attention/drawing.cuh>
#include <kernwright/math/types.cuh>

using namespace kernwright;
using namespace kernwright::config;

// Streams of random numbers: each tensor has its own.
enum Stream { kX, kQueryNorm, kKeyNorm, kCosine, kSine, kPosition, kSlot, kCache, kRopeCache };

struct Draw {
  bool has_nan;
  unsigned long long seed;

  __device__ unsigned long long bits(Stream stream, long long place) const {
    return hash_at(hash_at(seed, stream), static_cast<unsigned long long>(place));
  }
  // Fills rows with normal numbers, seldom NaN if `may_be_nan`.
  template <typename T>
  __device__ void fill(T* to, Stream stream, long long rows, long long columns, long long pitch,
                       bool may_be_nan) const {
    if (!to) return;
    for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
      for (long long d = threadIdx.x; d < columns; d += blockDim.x) {
        const unsigned long long random = bits(stream, row * columns + d);
        const bool is_nan = has_nan && may_be_nan && random % 1021 == 0;
        to[row * pitch + d] = from_float<T>(is_nan ? NAN : normal(random));
      }
    }
  }
};

// All of a cache is filled: elements that no new token overwrites must stay. No two tokens have the
// same slot, and some have none.
#define DRAW(has_nan)                                                                           \
  const Draw draw{has_nan, static_cast<unsigned long long>(seed)};                              \
  draw.fill(x, kX, tokens, width, ldx, true);                                                   \
  if constexpr (query == query_norm) draw.fill(q_norm, kQueryNorm, 1, q_rank, q_rank, false);   \
  draw.fill(kv_norm, kKeyNorm, 1, latent, latent, false);                                       \
  draw.fill(cosine, kCosine, angles, rope / 2, rope / 2, true);                                 \
  draw.fill(sine, kSine, angles, rope / 2, rope / 2, true);                                     \
  draw.fill(cache, kCache, pool, cache_width, ld_cache, false);                                 \
  if constexpr (config::keys == keys_apart) {                                                   \
    draw.fill(rope_cache, kRopeCache, pool, rope, ld_rope, false);                              \
  }                                                                                             \
  if (blockIdx.x > 0) return;                                                                   \
  const Order order(draw.bits(kSlot, 0), pool);                                                 \
  for (long long i = threadIdx.x; i < tokens; i += blockDim.x) {                                \
    if (positions) {                                                                            \
      positions[i] = static_cast<int>(draw.bits(kPosition, i) % static_cast<unsigned>(angles)); \
    }                                                                                           \
    const bool has_slot = i < pool && (tokens == 1 || draw.bits(kSlot, i + 1) % 8 != 0);        \
    if (slots) slots[i] = has_slot ? static_cast<int>(order(i)) : -1;                           \
  }

extern "C" __global__ void mla_append_timing(KW_PARAMETERS(mla_append_timing)) { DRAW(false) }

// Draws NaN in one of 1021 elements of tokens and angles. A weight that is NaN would leave no token
// a number.
extern "C" __global__ void mla_append_nan(KW_PARAMETERS(mla_append_nan)) { DRAW(true) }
