#pragma once
// Thread block clusters (sm_90).

namespace kernwright {

// Form the two halves of a barrier over all threads of the cluster. Writes before the arrival are
// visible after the wait.
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}
// Arrives without publishing writes, except initialised mbarriers, which have their own fence.
__device__ __forceinline__ void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}
// Does both, if `Runs`.
template <bool Runs = true>
__device__ __forceinline__ void cluster_sync_relaxed() {
  if constexpr (Runs) {
    cluster_arrive_relaxed();
    cluster_wait();
  }
}

// Returns this block's place in its cluster.
__device__ __forceinline__ unsigned cluster_rank() {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// Returns the address in block `rank` of the cluster that corresponds to shared `address` of this
// block.
__device__ __forceinline__ unsigned cluster_address(unsigned address, unsigned rank) {
  unsigned mapped;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
  return mapped;
}

// Stores a pair to a mapped address. It is visible after a barrier of the cluster.
__device__ __forceinline__ void cluster_put(unsigned address, float2 x) {
  asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(x.x), "f"(x.y)
               : "memory");
}

// Stores 16 or 8 bytes, or a word, to a mapped address. They are counted as landed on the mapped
// mbarrier of the same block, which must have announced them, and are visible after a wait for it.
__device__ __forceinline__ void cluster_store(unsigned address, const float4& x, unsigned barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32"
      " [%0], {%1, %2, %3, %4}, [%5];" ::"r"(address),
      "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w), "r"(barrier)
      : "memory");
}

__device__ __forceinline__ void cluster_store(unsigned address, const float2& x, unsigned barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::
          "r"(address),
      "f"(x.x), "f"(x.y), "r"(barrier)
      : "memory");
}

__device__ __forceinline__ void cluster_store(unsigned address, unsigned word, unsigned barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(
          address),
      "r"(word), "r"(barrier)
      : "memory");
}

// Loads four words, or two, at a mapped address.
__device__ __forceinline__ float4 cluster_load_quad(unsigned address) {
  float4 x;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
               : "r"(address)
               : "memory");
  return x;
}
__device__ __forceinline__ float2 cluster_load_pair(unsigned address) {
  float2 x;
  asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];"
               : "=f"(x.x), "=f"(x.y)
               : "r"(address)
               : "memory");
  return x;
}

}  // namespace kernwright
