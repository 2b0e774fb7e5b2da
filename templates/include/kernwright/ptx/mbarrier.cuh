#pragma once
// mbarrier in shared memory (sm_90). A phase ends when all arrivals have been made and all
// announced bytes have landed. A barrier is passed as its 32-bit shared address. Phases have parity
// 0, 1, 0 and so on, and a waiter passes the parity of the phase that it waits for.

namespace kernwright {

__device__ __forceinline__ void mbarrier_init(unsigned barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible to the cluster's other blocks and to TMA.
__device__ __forceinline__ void mbarrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives once all copies that the thread has started by cp_async have landed.
__device__ __forceinline__ void mbarrier_arrive_copied(unsigned barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// Arrives at the barrier at this address in block `rank` of the cluster. This is enough to let TMA
// overwrite data that wgmma has read. It does not order ordinary accesses between blocks: fences of
// cluster scope would cost 0.7 us a stage on an H200.
__device__ __forceinline__ void mbarrier_arrive_at(unsigned barrier, unsigned rank) {
  asm volatile(
      "{ .reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote]; }" ::"r"(barrier),
      "r"(rank)
      : "memory");
}

// Arrives, and announces `bytes` that TMA will write to this block. Any block of the cluster may
// issue these loads.
__device__ __forceinline__ void mbarrier_arrive_expect(unsigned barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

// Waits until the phase of this parity has ended; the hardware suspends the thread meanwhile.
__device__ __forceinline__ void mbarrier_wait(unsigned barrier, unsigned parity) {
  asm volatile(
      "{ .reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again; }" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// A position in a ring of stages with a barrier each: the stage, and the parity of its barrier's
// phase, which changes in each round.
template <int Stages>
struct Ring {
  int stage = 0;
  unsigned parity = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == Stages) {
      stage = 0;
      parity ^= 1;
    }
  }
  __device__ __forceinline__ void skip(int count) {
    stage += count;
    parity ^= stage / Stages & 1;
    stage %= Stages;
  }
};

}  // namespace kernwright
