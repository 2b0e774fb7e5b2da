#pragma once
// The scale of elements that are quantized together.

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

}  // namespace kernwright
