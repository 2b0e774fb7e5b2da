#pragma once
// Programmatic dependent launch (sm_90): a kernel of a plan may start while the one before it still
// runs. On older architectures, whose launches wait for one another, these do nothing.

namespace kernwright {

// Lets the next kernel's blocks start as soon as all blocks of this one have called or ended.
__device__ __forceinline__ void release_next_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Returns when the kernel before this one has ended and its writes are visible. A kernel whose
// launch says "waits" has called it before it touches memory. Where the launch was an ordinary one
// both cost nothing.
__device__ __forceinline__ void await_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace kernwright
