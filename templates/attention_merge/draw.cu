#include <kernwright/attention/drawing.cuh>
#include <kernwright/attention/places.cuh>
#include <kernwright/math/types.cuh>

using namespace kernwright;
using namespace kernwright::config;

enum Set { kTiming, kExact, kCount };
// Streams of random numbers: each quantity has its own.
enum Stream { kElement, kExponent, kKind, kChoice };

// A part whose lse is larger by this hides all others: their weights are 0 in fp32, to either base.
constexpr float kLead = 200;

struct Draw {
  Set set;
  unsigned long long seed;
  dtype_t* o_parts;
  float* lse_of_part;
  long long part_count, sequences, all_heads, tokens, size, pitch;

  __device__ unsigned long long bits(Stream stream, long long place) const {
    return hash_at(hash_at(seed, stream), static_cast<unsigned long long>(place));
  }

  // Returns the lse of a row's part: minus infinity if the part saw nothing.
  __device__ float exponent(long long part, long long row) const {
    const long long place = part * sequences * all_heads * tokens + row;
    if (set == kTiming) return 2 * normal(bits(kExponent, place));
    const unsigned long long kind = bits(kKind, row) % 8;
    if (kind == 0) return -INFINITY;  // no part of the row saw anything
    // Around 0 or far from it on either side.
    const float far[] = {0, -1024, 512, 0};
    const float base = far[bits(kChoice, row) % 4];
    if (set == kCount) return bits(kExponent, place) % 3 == 0 ? -INFINITY : base;
    if (kind < 4) {  // one part leads
      const auto lead = static_cast<long long>(bits(kChoice, row) / 4 %
                                               static_cast<unsigned long long>(part_count));
      if (part == lead) return base + kLead;
      return bits(kExponent, place) % 4 == 0 ? -INFINITY : base;
    }
    // A power of two of parts has equal weights, from a first part on; the other parts are empty.
    long long equal = 1;
    while (2 * equal <= part_count && equal < (1ll << kind % 4 * 2)) equal *= 2;
    const auto first = static_cast<long long>(bits(kChoice, row) / 4 %
                                              static_cast<unsigned long long>(part_count));
    return (part + part_count - first) % part_count < equal ? base : -INFINITY;
  }

  // The elements of a part that saw nothing are left as they are.
  __device__ void run() const {
    const long long rows_of_part = sequences * all_heads * tokens;
    for (long long i = blockIdx.x; i < part_count * rows_of_part; i += gridDim.x) {
      const long long part = i / rows_of_part;
      const long long row = i % rows_of_part;
      const float own = exponent(part, row);
      if (lse_of_part && threadIdx.x == 0) lse_of_part[i] = own;
      if (!o_parts || own == -INFINITY) continue;
      const long long entry = part * sequences + row / tokens / all_heads;
      const long long at =
          place_of(entry, row % tokens, row / tokens % all_heads, tokens, all_heads, size, pitch);
      for (long long d = threadIdx.x; d < size; d += blockDim.x) {
        const unsigned long long random = bits(kElement, i * size + d);
        const float integer = static_cast<float>(random % 7) - 3;
        o_parts[at + d] = from_float<dtype_t>(set == kExact ? integer : normal(random));
      }
    }
  }
};

#define PARAMETERS                                                                                 \
  dtype_t *o_parts, float *lse_of_part, long long seed, long long part_count, long long sequences, \
      long long all_heads, long long tokens, long long size, long long pitch
#define DRAW(set)                                         \
  Draw{set,        static_cast<unsigned long long>(seed), \
       o_parts,    lse_of_part,                           \
       part_count, sequences,                             \
       all_heads,  tokens,                                \
       size,       pitch}                                 \
      .run()

// Draws parts that all saw something.
extern "C" __global__ void attention_merge_timing(PARAMETERS) { DRAW(kTiming); }

// Draws parts so that one counts alone in some rows, and in others so many count alike that their
// mean is exact.
extern "C" __global__ void attention_merge_exact(PARAMETERS) { DRAW(kExact); }

// Draws the same lse for all parts that saw something, which is far from 0 in some rows: the merged
// lse is the logarithm of their number above it.
extern "C" __global__ void attention_merge_count(PARAMETERS) { DRAW(kCount); }
