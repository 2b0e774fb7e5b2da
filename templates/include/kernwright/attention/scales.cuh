#pragma once
// What fp8 tensors are multiplied by. For the operation attention, whose flags it reads.

#include <kernwright/config.cuh>

namespace kernwright {

// The scales of all of a tensor, or of each sequence and head of k. Those that the flags do not ask
// for are null or 1.
struct Scales {
  const float* q_heads;
  const float* k_heads;
  const float* v_heads;
  float q, k, v;

  // What products of queries and keys are multiplied by.
  __device__ __forceinline__ float of_products(int sequence, int kv_head) const {
    using namespace config;
    if constexpr (descale == descale_head) {
      const float of_keys = k_heads[place(sequence, kv_head)];
      return dtype == dtype_fp8_e4m3 ? q_heads[place(sequence, kv_head)] * of_keys : of_keys;
    }
    return descale == descale_tensor ? q * k : 1.0f;
  }
  // What sums of values are multiplied by.
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
