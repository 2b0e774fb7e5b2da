#pragma once
// Flags in global memory, by which a block tells another that its results are there. A block may
// wait only for blocks with lower numbers, which have started before it.

namespace kernwright {

// Sets the flag. A thread that sees it also sees all that this thread wrote before.
__device__ __forceinline__ void set_flag(int* flag) {
  asm volatile("st.release.gpu.global.s32 [%0], 1;" ::"l"(flag) : "memory");
}

// Waits until the flag is set.
__device__ __forceinline__ void wait_flag(const int* flag) {
  int value;
  do {
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  } while (value == 0);
}

}  // namespace kernwright
