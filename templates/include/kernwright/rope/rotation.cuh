#pragma once
// The rotation of a unit of a head: two vectors that are half a head apart, or one element apart if
// a vector has one element. Pairs are element i of the first with element i of the second vector
// (Across), or neighbours within each. Half is the number of pairs of a head.

#include <kernwright/math/vector.cuh>

namespace kernwright {

// The cosines or sines of both vectors of a unit. If pairs are across the vectors, both share them.
template <int Lanes, int Half, bool Across>
struct UnitAngles {
  static constexpr int kCount = Across ? Lanes : Lanes / 2;  // in one vector

  Elements<float, kCount> first;
  Elements<float, kCount> second;

  __device__ __forceinline__ UnitAngles(const float* table, int unit) {
    first = load_elements<Load::read_only, kCount>(table + unit * kCount);
    if constexpr (!Across) {
      second = load_elements<Load::read_only, kCount>(table + Half / 2 + unit * kCount);
    }
  }
  // Prefetches them into the L2.
  static __device__ __forceinline__ void prefetch(const float* table, int unit) {
    prefetch_line(table + unit * kCount);
    if constexpr (!Across) prefetch_line(table + Half / 2 + unit * kCount);
  }
};

// Rotates a vector whose pairs are neighbours.
template <typename Vector, int Lanes, int Count>
__device__ __forceinline__ void rotate_within(float (&value)[Lanes], const Vector& x,
                                              const Elements<float, Count>& cosine,
                                              const Elements<float, Count>& sine) {
#pragma unroll
  for (int i = 0; i < Lanes / 2; ++i) {
    value[2 * i] = x[2 * i] * cosine[i] - x[2 * i + 1] * sine[i];
    value[2 * i + 1] = x[2 * i + 1] * cosine[i] + x[2 * i] * sine[i];
  }
}

// Rotates the vectors x and y of a unit, which are Elements or arrays of float.
template <typename Vector, int Lanes, int Half, bool Across>
__device__ __forceinline__ void rotate(float (&first)[Lanes], float (&second)[Lanes],
                                       const Vector& x, const Vector& y,
                                       const UnitAngles<Lanes, Half, Across>& cosine,
                                       const UnitAngles<Lanes, Half, Across>& sine) {
  if constexpr (Across) {
#pragma unroll
    for (int i = 0; i < Lanes; ++i) {
      first[i] = x[i] * cosine.first[i] - y[i] * sine.first[i];
      second[i] = y[i] * cosine.first[i] + x[i] * sine.first[i];
    }
  } else {
    rotate_within(first, x, cosine.first, sine.first);
    rotate_within(second, y, cosine.second, sine.second);
  }
}

}  // namespace kernwright
