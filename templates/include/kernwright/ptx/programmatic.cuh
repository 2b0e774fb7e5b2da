#pragma once
// Programmatic dependent launch (sm_90): a kernel may start while the previous one still runs. On
// older architectures a launch always waits for the previous one, and these functions do nothing.

namespace kernwright {

// Lets the next kernel's blocks start as soon as all blocks of this one have called or ended.
__device__ __forceinline__ void release_next_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Waits until the previous kernel has ended and its writes are visible. A kernel whose launch has
// "waits" in the manifest must call it before it touches memory. After an ordinary launch both
// functions cost nothing.
__device__ __forceinline__ void await_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace kernwright
