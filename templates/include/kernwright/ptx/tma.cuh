#pragma once
// TMA (sm_90): copies boxes of two to five dimensions, and contiguous bytes, between global and
// shared memory. The coordinates of a box count elements, the innermost dimension first. A box may
// reach beyond the tensor: such elements load as zeros, which count as bytes, and are not stored.
// In shared memory the rows of a box follow each other, whatever the number of its dimensions.

namespace kernwright {

// A coordinate outside every tensor: such a box loads as zeros, and nothing is read.
constexpr int kNowhere = -1024;

// The driver's CUtensorMap, passed as a __grid_constant__ parameter.
struct __align__(64) TensorMap {
  unsigned long long words[16];
};

__device__ __forceinline__ void tma_prefetch(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Loads one box to `destination`; its bytes complete on `barrier`.
__device__ __forceinline__ void tma_load(unsigned destination, const TensorMap& map, int x, int y,
                                         unsigned barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3}], [%4];" ::"r"(destination),
      "l"(&map), "r"(x), "r"(y), "r"(barrier)
      : "memory");
}

// The same with three, four and five dimensions.
__device__ __forceinline__ void tma_load(unsigned destination, const TensorMap& map,
                                         const int (&at)[3], unsigned barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(destination),
      "l"(&map), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void tma_load(unsigned destination, const TensorMap& map,
                                         const int (&at)[4], unsigned barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(destination),
      "l"(&map), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void tma_load(unsigned destination, const TensorMap& map,
                                         const int (&at)[5], unsigned barrier) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3, %4, %5, %6}], [%7];" ::"r"(destination),
      "l"(&map), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4]), "r"(barrier)
      : "memory");
}

// The same with two to five dimensions for data that is read once: the L2 evicts it first.
constexpr unsigned long long kEvictFirst = 0x12f0000000000000;
__device__ __forceinline__ void tma_load_once(unsigned destination, const TensorMap& map, int x,
                                              int y, unsigned barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(destination),
      "l"(&map), "r"(x), "r"(y), "r"(barrier), "l"(kEvictFirst)
      : "memory");
}

__device__ __forceinline__ void tma_load_once(unsigned destination, const TensorMap& map,
                                              const int (&at)[3], unsigned barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(destination),
      "l"(&map), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(barrier), "l"(kEvictFirst)
      : "memory");
}
__device__ __forceinline__ void tma_load_once(unsigned destination, const TensorMap& map,
                                              const int (&at)[4], unsigned barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(destination),
      "l"(&map), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(barrier), "l"(kEvictFirst)
      : "memory");
}

__device__ __forceinline__ void tma_load_once(unsigned destination, const TensorMap& map,
                                              const int (&at)[5], unsigned barrier) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3, %4, %5, %6}], [%7], %8;" ::"r"(destination),
      "l"(&map), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4]), "r"(barrier),
      "l"(kEvictFirst)
      : "memory");
}

// Loads one box to the same place in every block of the cluster whose bit is set in `ranks`, and
// completes on the barrier at the same place in each.
__device__ __forceinline__ void tma_load_multicast(unsigned destination, const TensorMap& map,
                                                   int x, int y, unsigned barrier,
                                                   unsigned short ranks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(destination),
      "l"(&map), "r"(x), "r"(y), "r"(barrier), "h"(ranks)
      : "memory");
}

// Does the same for data that is read once.
__device__ __forceinline__ void tma_load_multicast_once(unsigned destination, const TensorMap& map,
                                                        int x, int y, unsigned barrier,
                                                        unsigned short ranks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster.L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5, %6;" ::"r"(destination),
      "l"(&map), "r"(x), "r"(y), "r"(barrier), "h"(ranks), "l"(kEvictFirst)
      : "memory");
}

// Runs one of the four above: for the blocks in `ranks` if `Sharers` blocks of a cluster share the
// box, else for this block alone. `once` is a branch between two instructions, since one
// instruction with either hint would cost the loading thread registers that it does not have.
template <int Sharers>
__device__ __forceinline__ void tma_load_for(unsigned destination, const TensorMap& map, int x,
                                             int y, unsigned barrier, unsigned ranks, bool once) {
  if constexpr (Sharers > 1) {
    const auto mask = static_cast<unsigned short>(ranks);
    if (once) {
      tma_load_multicast_once(destination, map, x, y, barrier, mask);
    } else {
      tma_load_multicast(destination, map, x, y, barrier, mask);
    }
  } else if (once) {
    tma_load_once(destination, map, x, y, barrier);
  } else {
    tma_load(destination, map, x, y, barrier);
  }
}

// Loads `bytes` contiguous bytes without a tensor map; both addresses and the size are multiples of
// 16. They complete on `barrier`.
__device__ __forceinline__ void bulk_load(unsigned destination, const void* source, unsigned bytes,
                                          unsigned barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(destination),
      "l"(source), "r"(bytes), "r"(barrier)
      : "memory");
}

// Does the same for data that is read once: the L2 evicts it first.
__device__ __forceinline__ void bulk_load_once(unsigned destination, const void* source,
                                               unsigned bytes, unsigned barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1], %2, [%3], %4;" ::"r"(destination),
      "l"(source), "r"(bytes), "r"(barrier), "l"(kEvictFirst)
      : "memory");
}

// Orders this thread's ordinary accesses to shared memory before later accesses by TMA.
__device__ __forceinline__ void tma_store_fence() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Closes the group of this thread's TMA stores since the last call.
__device__ __forceinline__ void tma_store_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Stores one box, as a group of its own.
__device__ __forceinline__ void tma_store(const TensorMap& map, unsigned source, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(
          &map),
      "r"(x), "r"(y), "r"(source)
      : "memory");
  tma_store_commit();
}

// The same with three, four and five dimensions.
__device__ __forceinline__ void tma_store(const TensorMap& map, unsigned source,
                                          const int (&at)[3]) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(
          &map),
      "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(source)
      : "memory");
  tma_store_commit();
}
__device__ __forceinline__ void tma_store(const TensorMap& map, unsigned source,
                                          const int (&at)[4]) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::
          "l"(&map),
      "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(source)
      : "memory");
  tma_store_commit();
}
__device__ __forceinline__ void tma_store(const TensorMap& map, unsigned source,
                                          const int (&at)[5]) {
  asm volatile(
      "cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4, %5}], "
      "[%6];" ::"l"(&map),
      "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4]), "r"(source)
      : "memory");
  tma_store_commit();
}

// Waits until at most `Pending` of this thread's latest groups of stores still read shared memory.
template <int Pending>
__device__ __forceinline__ void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
}

}  // namespace kernwright
