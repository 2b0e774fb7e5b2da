#pragma once
// Sums over groups of neighbouring threads; every thread of the group gets the result.

namespace kernwright {

// Over `Width` lanes of a warp (a power of two up to 32). All lanes of the warp must call.
template <int Width>
__device__ __forceinline__ float warp_sum(float x) {
  static_assert(Width >= 1 && Width <= 32 && (Width & (Width - 1)) == 0);
#pragma unroll
  for (int offset = Width / 2; offset > 0; offset /= 2) {
    x += __shfl_xor_sync(0xffffffffu, x, offset);
  }
  return x;
}

// Over `Warps` neighbouring warps, with one barrier: each warp leaves its part and then adds up all
// parts itself. `parts` has `Warps` floats, this group's own; a caller that sums again must
// alternate between two such arrays, because nothing here waits for the readers. All threads of the
// block call.
template <int Warps>
__device__ __forceinline__ float group_sum(float x, float* parts) {
  static_assert(Warps >= 1 && Warps <= 32);
  x = warp_sum<32>(x);
  if constexpr (Warps > 1) {
    const int lane = threadIdx.x % 32;
    if (lane == 0) parts[threadIdx.x / 32 % Warps] = x;
    __syncthreads();
    x = warp_sum<32>(lane < Warps ? parts[lane] : 0.0f);
  }
  return x;
}

}  // namespace kernwright
