#pragma once
// Launches that begin before the one in front of them has ended (sm_90, `programmatic` in a
// manifest). Without that attribute both are without effect.

namespace kernwright {

// Returns when the launch in front has ended and what it wrote can be read.
__device__ __forceinline__ void grid_dependency_wait() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

// The launch behind may begin as soon as all blocks have come here or ended.
__device__ __forceinline__ void grid_dependents_launch() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

}  // namespace kernwright
