#pragma once
// The scales by which fp8 tensors are multiplied. For the operation attention, whose flags it
// reads.

#include <kernwright/config.cuh>

namespace kernwright {

// One scale for all of a tensor, or one for each sequence and head of k. Scales that the flags do
// not ask for are null or 1.
struct Scales {
  const float* q_heads;
  const float* k_heads;
  const float* v_heads;
  float q, k, v;

  // Returns the factor of products of queries and keys.
  __device__ __forceinline__ float of_products(int sequence, int kv_head) const {
    using namespace config;
    if constexpr (descale == descale_head) {
      const float of_keys = k_heads[place(sequence, kv_head)];
      return dtype == dtype_fp8_e4m3 ? q_heads[place(sequence, kv_head)] * of_keys : of_keys;
    }
    return descale == descale_tensor ? q * k : 1.0f;
  }
  // Returns the factor of sums of values.
  __device__ __forceinline__ float of_values(int sequence, int kv_head) const {
    using namespace config;
    if constexpr (descale == descale_head) return v_heads[place(sequence, kv_head)];
    return descale == descale_tensor ? v : 1.0f;
  }

 private:
  static __device__ __forceinline__ long long place(int sequence, int kv_head) {
    return static_cast<long long>(sequence) * config::kv_heads + kv_head;
  }
};

}  // namespace kernwright
