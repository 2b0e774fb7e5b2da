#pragma once
// The rotation for references. It reads the flag `pairs`.

#include <kernwright/config.cuh>

namespace kernwright::config {

// A head of q or k as it is rotated: divided by its root mean square, or as it is.
template <bool Normalises>
struct HeadToRotate {
  __device__ HeadToRotate(const dtype_t* x, const dtype_t* weight, long long size, float eps)
      : x(x), weight(weight) {
    if constexpr (Normalises) {
      double squares = 0;
      for (long long i = 0; i < size; ++i) {
        const double element = to_float(x[i]);
        squares += element * element;
      }
      factor = static_cast<float>(1 / sqrt(squares / static_cast<double>(size) + eps));
    }
  }
  __device__ float operator[](long long i) const {
    return Normalises ? to_float(x[i]) * factor * to_float(weight[i]) : to_float(x[i]);
  }

  const dtype_t* x;
  const dtype_t* weight;
  float factor = 1;
};

// Computes element `d` of a rotated head, and the sum of its absolute terms. `head` returns an
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
