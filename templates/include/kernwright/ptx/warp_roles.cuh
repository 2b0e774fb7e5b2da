#pragma once
// Parts of kernels whose warps do different work: barriers over some of a block's threads, one
// thread of a warp, and registers that move between warpgroups (the last two on sm_90).

namespace kernwright {

// Use barrier `id` over `threads` threads of the block. The first arrives without waiting, the
// second arrives and waits.
__device__ __forceinline__ void named_barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void named_barrier_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Returns true in one thread of a converged warp.
__device__ __forceinline__ bool elect_one() {
  unsigned chosen;
  asm volatile(
      "{ .reg .pred p;\n"
      "elect.sync _|p, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, p; }"
      : "=r"(chosen));
  return chosen != 0;
}

// Set the number of registers for each thread of a warpgroup. Every warp of the warpgroup must run
// it. All warpgroups together may hold no more than the launch allocated. 0 changes nothing.
template <int Registers>
__device__ __forceinline__ void registers_release() {
  if constexpr (Registers != 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
  }
}
template <int Registers>
__device__ __forceinline__ void registers_claim() {
  if constexpr (Registers != 0) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
  }
}

}  // namespace kernwright
