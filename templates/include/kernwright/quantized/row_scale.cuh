#pragma once
// The scale of elements that are quantized together.

#include <kernwright/math/reduce.cuh>
#include <kernwright/math/types.cuh>

namespace kernwright {

template <typename T>
constexpr float kLargestCode = 127;  // of int8
template <>
constexpr float kLargestCode<fp8_e4m3> = 448;

// Returns the scale by which `most`, the largest absolute value, becomes the largest number of Out,
// or `least` if that is more.
template <typename Out>
__device__ __forceinline__ float row_scale(float most, float least) {
  return larger(most / kLargestCode<Out>, least);
}

// Returns the largest absolute value of some, and of `most`.
template <int Lanes>
__device__ __forceinline__ float largest(const float (&value)[Lanes], float most = 0) {
#pragma unroll
  for (int i = 0; i < Lanes; ++i) most = larger(most, fabsf(value[i]));
  return most;
}

// Divides the values of a group by its scale, which it returns. `Threads` neighbouring lanes of a
// warp have parts of the group; all lanes of the warp must call.
template <typename Out, int Threads, int Lanes>
__device__ __forceinline__ float divide_by_group_scale(float (&value)[Lanes], float least) {
  const float scale = row_scale<Out>(warp_reduce<Max, Threads>(largest(value)), least);
  const float factor = 1 / scale;
#pragma unroll
  for (int i = 0; i < Lanes; ++i) value[i] *= factor;
  return scale;
}

}  // namespace kernwright
