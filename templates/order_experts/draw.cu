#include <kernwright/attention/drawing.cuh>

using namespace kernwright;
using namespace kernwright::config;

enum Stream { kFavour = 2, kId, kKind };

constexpr int kFirst = 3;  // the checked value of the scalar

__device__ unsigned long long bits_at(long long seed, Stream stream, long long place) {
  return hash_at(hash_at(static_cast<unsigned long long>(seed), stream),
                 static_cast<unsigned long long>(place));
}

// Draws the experts of a token as a router does whose experts are not equally popular: choice j is
// the best one of a few candidates, in the j-th part of a permutation, so that no expert is chosen
// twice if there are enough of them. Every eighth token is of other experts too.
extern "C" __global__ void order_experts_timing(KW_PARAMETERS(order_experts_timing)) {
  const long long part = max(experts / top, 1ll);
  const Order order(static_cast<unsigned long long>(seed), experts);
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < tokens * top; i += static_cast<long long>(gridDim.x) * blockDim.x) {
    long long best = 0;
    float most = -INFINITY;
    for (int candidate = 0; candidate < 4; ++candidate) {
      const auto random = bits_at(seed, kId, 4 * i + candidate);
      const long long e =
          order((i % top * part +
                 static_cast<long long>(random % static_cast<unsigned long long>(part))) %
                experts);
      const float favour = normal(bits_at(seed, kFavour, e)) + normal(random >> 8);
      if (favour > most) {
        most = favour;
        best = e;
      }
    }
    ids[i] = kFirst + static_cast<int>(best);
  }
}

// Draws ids of five kinds: any, one expert alone, few of many, other ranks' and padding, and both
// ends.
extern "C" __global__ void order_experts_exact(KW_PARAMETERS(order_experts_exact)) {
  const unsigned long long kind = bits_at(seed, kKind, 0) % 5;
  const auto count = static_cast<unsigned long long>(experts);
  const auto chosen = static_cast<int>(bits_at(seed, kKind, 1) % count);
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < tokens * top; i += static_cast<long long>(gridDim.x) * blockDim.x) {
    const unsigned long long random = bits_at(seed, kId, i);
    const int any = kFirst + static_cast<int>(random % count);
    const int end = random & 1 ? kFirst : kFirst + static_cast<int>(experts) - 1;
    const int other = random % 3 == 0   ? -1
                      : random % 3 == 1 ? kFirst - 1
                                        : kFirst + static_cast<int>(experts);
    const bool is_other = random >> 32 & 1;
    ids[i] = kind == 0   ? any
             : kind == 1 ? kFirst + chosen
             : kind == 2 ? kFirst + static_cast<int>(random % 3 % count)
             : kind == 3 ? (is_other ? other : any)
                         : (random >> 8 & 1 ? end : other);
  }
}
