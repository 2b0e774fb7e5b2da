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
  float* lse_parts;
  long long parts, batch, heads, q_len, head_dim_v, ldp;

  __device__ unsigned long long bits(Stream stream, long long place) const {
    return hash_at(hash_at(seed, stream), static_cast<unsigned long long>(place));
  }

  // Returns the lse of a row's part: minus infinity if the part saw nothing.
  __device__ float exponent(long long part, long long row) const {
    const long long place = part * batch * heads * q_len + row;
    if (set == kTiming) return 2 * normal(bits(kExponent, place));
    const unsigned long long kind = bits(kKind, row) % 8;
    if (kind == 0) return -INFINITY;  // no part of the row saw anything
    // Around 0 or far from it on either side.
    const float far[] = {0, -1024, 512, 0};
    const float base = far[bits(kChoice, row) % 4];
    if (set == kCount) return bits(kExponent, place) % 3 == 0 ? -INFINITY : base;
    if (kind < 4) {  // one part leads
      const auto lead =
          static_cast<long long>(bits(kChoice, row) / 4 % static_cast<unsigned long long>(parts));
      if (part == lead) return base + kLead;
      return bits(kExponent, place) % 4 == 0 ? -INFINITY : base;
    }
    // A power of two of parts has equal weights, from a first part on; the other parts are empty.
    long long equal = 1;
    while (2 * equal <= parts && equal < (1ll << kind % 4 * 2)) equal *= 2;
    const auto first =
        static_cast<long long>(bits(kChoice, row) / 4 % static_cast<unsigned long long>(parts));
    return (part + parts - first) % parts < equal ? base : -INFINITY;
  }

  // The elements of a part that saw nothing are left as they are.
  __device__ void run() const {
    const long long rows_of_part = batch * heads * q_len;
    for (long long i = blockIdx.x; i < parts * rows_of_part; i += gridDim.x) {
      const long long part = i / rows_of_part;
      const long long row = i % rows_of_part;
      const float own = exponent(part, row);
      if (lse_parts && threadIdx.x == 0) lse_parts[i] = own;
      if (!o_parts || own == -INFINITY) continue;
      const long long entry = part * batch + row / q_len / heads;
      const long long at =
          place_of(entry, row % q_len, row / q_len % heads, q_len, heads, head_dim_v, ldp);
      for (long long d = threadIdx.x; d < head_dim_v; d += blockDim.x) {
        const unsigned long long random = bits(kElement, i * head_dim_v + d);
        const float integer = static_cast<float>(random % 7) - 3;
        o_parts[at + d] = from_float<dtype_t>(set == kExact ? integer : normal(random));
      }
    }
  }
};

#define DRAW(set)                                         \
  Draw{set,        static_cast<unsigned long long>(seed), \
       o_parts,    lse_parts,                             \
       parts,      batch,                                 \
       heads,      q_len,                                 \
       head_dim_v, ldp}                                   \
      .run()

// Draws parts that all saw something.
extern "C" __global__ void attention_merge_timing(KW_PARAMETERS(attention_merge_timing)) {
  DRAW(kTiming);
}

// Draws parts so that one counts alone in some rows, and in others so many count alike that their
// mean is exact.
extern "C" __global__ void attention_merge_exact(KW_PARAMETERS(attention_merge_exact)) {
  DRAW(kExact);
}

// Draws the same lse for all parts that saw something, which is far from 0 in some rows: the merged
// lse is the logarithm of their number above it.
extern "C" __global__ void attention_merge_count(KW_PARAMETERS(attention_merge_count)) {
  DRAW(kCount);
}
