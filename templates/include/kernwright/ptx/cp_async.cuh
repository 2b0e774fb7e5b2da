#pragma once
// Asynchronous copies from global to shared memory (sm_80 and newer), in groups that complete in
// their order.

namespace kernwright {

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// Copies `Bytes` bytes (4, 8 or 16, which is also the alignment of both sides). Reads only the
// first `valid` bytes of the source and fills the rest with zeros; with valid = 0 it reads nothing.
template <int Bytes>
__device__ __forceinline__ void cp_async(unsigned destination, const void* source, int valid) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16);
  if constexpr (Bytes == 16) {  // .cg bypasses the L1, since a block reads a tile once
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(destination),
                 "l"(source), "r"(valid)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(destination), "l"(source),
                 "n"(Bytes), "r"(valid)
                 : "memory");
  }
}

// Does the same, and reads all `Bytes` bytes.
template <int Bytes>
__device__ __forceinline__ void cp_async(unsigned destination, const void* source) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16);
  if constexpr (Bytes == 16) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(destination),
                 "l"(source)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(destination), "l"(source),
                 "n"(Bytes)
                 : "memory");
  }
}

__device__ __forceinline__ void cp_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most `Pending` of this thread's latest groups are still in flight.
template <int Pending>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

}  // namespace kernwright
