#pragma once
// mbarrier in shared memory (sm_90): a phase ends when all arrivals and all announced bytes are in.
// Barriers are named by their 32-bit shared address; waiters keep the parity of the phase they wait
// for, starting with 0.

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

// Arrives at the barrier that lies at this address in block `rank` of the cluster. It says that
// what was read asynchronously (wgmma) may be overwritten asynchronously (TMA), and orders no
// ordinary accesses between blocks: the fences of cluster scope cost 0.7 us a stage on an H200.
__device__ __forceinline__ void mbarrier_arrive_at(unsigned barrier, unsigned rank) {
  asm volatile(
      "{ .reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote]; }" ::"r"(barrier),
      "r"(rank)
      : "memory");
}

// Arrives and announces `bytes` that TMA will write here, from whichever block.
__device__ __forceinline__ void mbarrier_arrive_expect(unsigned barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

// Returns when the phase of this parity is over; the hardware suspends the thread meanwhile.
__device__ __forceinline__ void mbarrier_wait(unsigned barrier, unsigned parity) {
  asm volatile(
      "{ .reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again; }" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Where somebody stands in a ring of stages that have a barrier each: the stage, and the parity of
// the lap.
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
