#pragma once
// The rotation for references. It reads the flag `pairs`.

#include <kernwright/config.cuh>

namespace kernwright::config {

// Computes element `d` of a rotated head, and the sum of its absolute terms. `head` gives an
// element for its number.
template <typename Head>
__device__ void rotate(const Head& head, const float* cosine, const float* sine, long long size,
                       long long d, float* value, float* magnitude) {
  const bool halves = pairs == pairs_halves;
  const long long pair = halves ? d % (size / 2) : d / 2;
  const long long first = halves ? pair : 2 * pair;
  const long long second = halves ? pair + size / 2 : 2 * pair + 1;
  const float own = to_float(head[d]) * cosine[pair];
  const float other = to_float(head[d == first ? second : first]) * sine[pair];
  *value = d == first ? own - other : own + other;
  *magnitude = fabsf(own) + fabsf(other);
}

}  // namespace kernwright::config
