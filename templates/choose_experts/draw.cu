#include <kernwright/attention/drawing.cuh>
#include <kernwright/math/types.cuh>

using namespace kernwright;
using namespace kernwright::config;

enum Stream { kLogit = 2, kBias, kReal, kPlace };

__device__ unsigned long long bits_at(long long seed, Stream stream, long long place) {
  return hash_at(hash_at(static_cast<unsigned long long>(seed), stream),
                 static_cast<unsigned long long>(place));
}

// Fills the tensors that are not null.
template <typename Logit, typename Bias>
__device__ void draw(dtype_t* logits, bias_dtype_t* bias, int* real, long long tokens,
                     long long experts, long long real_tokens, const Logit& logit,
                     const Bias& of_expert) {
  const long long first = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  if (real && first == 0) real[0] = static_cast<int>(real_tokens);
  if (bias) {
    for (long long e = first; e < experts; e += stride) {
      bias[e] = from_float<bias_dtype_t>(of_expert(e));
    }
  }
  if (!logits) return;
  const long long drawn = padding == padding_behind ? real_tokens : tokens;
  for (long long i = first; i < drawn * experts; i += stride) {
    logits[i] = from_float<dtype_t>(logit(i / experts, i % experts, i));
  }
}

// Returns a number of tokens that are no padding: most of them, all or none.
__device__ long long some_of(long long seed, long long tokens) {
  const unsigned long long random = bits_at(seed, kReal, 0);
  if (random % 4 == 0) return random / 4 % 2 == 0 ? 0 : tokens;
  return static_cast<long long>(random / 4 % static_cast<unsigned long long>(tokens + 1));
}

extern "C" __global__ void choose_experts_timing(KW_PARAMETERS(choose_experts_timing)) {
  draw(
      logits, bias, real, tokens, experts, tokens - tokens / 16,
      [&](long long, long long, long long i) { return 1.5f * normal(bits_at(seed, kLogit, i)); },
      [&](long long e) { return 0.1f * normal(bits_at(seed, kBias, e)); });
}

// Draws rows of six kinds, in which most choices are ties.
extern "C" __global__ void choose_experts_exact(KW_PARAMETERS(choose_experts_exact)) {
  // Without a bias, a logit of minus infinity is chosen last and has the score 0.
  constexpr bool kHasInfinite = config::bias == bias_none && score != score_none;
  draw(
      logits, bias, real, tokens, experts, some_of(seed, tokens),
      [&](long long token, long long expert, long long i) {
        const unsigned long long random = bits_at(seed, kLogit, i);
        const auto place = static_cast<long long>(bits_at(seed, kPlace, token) %
                                                  static_cast<unsigned long long>(experts));
        switch ((token + seed) % 6) {
          case 0:
            return static_cast<float>(random % 5) - 2;  // equal ones everywhere
          case 1:
            return 0.5f;  // all
          case 2:
            return random % 3 > 0 ? -fabsf(normal(random)) : 0 * sign(random >> 8);  // both zeros
          case 3:
            return expert == place ? 6.0f : static_cast<float>(random % 2);  // one is far ahead
          case 4:
            return kHasInfinite && expert != place && random % 4 == 0 ? -INFINITY : normal(random);
          default:
            return static_cast<float>(expert % 7) / 8 - 1;  // the same in every token
        }
      },
      [&](long long e) { return static_cast<float>(bits_at(seed, kBias, e) % 5) / 4 - 0.5f; });
}

// Draws rows of five kinds, of which four have NaN, and biases of which one may be NaN.
extern "C" __global__ void choose_experts_nan(KW_PARAMETERS(choose_experts_nan)) {
  draw(
      logits, bias, real, tokens, experts, some_of(seed, tokens),
      [&](long long token, long long expert, long long i) {
        const unsigned long long random = bits_at(seed, kLogit, i);
        const float none = random >> 8 & 1 ? NAN : __uint_as_float(0xffc00000u);
        const auto place = static_cast<long long>(bits_at(seed, kPlace, token) %
                                                  static_cast<unsigned long long>(experts));
        switch ((token + seed) % 5) {
          case 0:
            return expert == place ? none : normal(random);
          case 1:
            return random % 7 == 0 ? none : normal(random);
          case 2:
            return none;
          case 3:
            return expert == experts - 1 ? none : normal(random);
          default:
            return normal(random);
        }
      },
      [&](long long e) {
        const auto place = static_cast<long long>(bits_at(seed, kPlace, -1) %
                                                  static_cast<unsigned long long>(experts));
        return seed % 2 == 0 && e == place ? NAN : 0.1f * normal(bits_at(seed, kBias, e));
      });
}
