#pragma once
// A ring of stages in shared memory between one thread that fills them by TMA, the producer, and
// warps that read them, the consumers (sm_90). A stage has two barriers: `full` says that its bytes
// have landed, `empty` that all who read it are done.
//
// Each side has a Pipeline of its own over the same barriers, which knows the stage that is next
// for that side. The order of calls:
//
//   one thread    init(), mbarrier_init_fence(), then a barrier of the block or the cluster
//   the producer  producer_acquire(bytes), loads that complete on full(), advance()
//   a consumer    consumer_wait(), reads of stage(), consumer_release(stage()), advance()
//
// A consumer may advance first and release the stage later, by its number. A side that leaves some
// stages to others passes over them by skip().
//
// In a cluster of ClusterM x ClusterN blocks, of rank m + ClusterM * n, blocks of one m may load
// for each other, and so may those of one n: a stage of this block is free once the readers of all
// these blocks have released it. With 1 x 1 nobody else is asked.

#include <kernwright/ptx/mbarrier.cuh>

namespace kernwright {

template <int Stages, int ClusterM = 1, int ClusterN = 1>
class Pipeline {
 public:
  static constexpr int kCluster = ClusterM * ClusterN;
  static constexpr int kBytes = 2 * 8 * Stages;  // of the barriers, which lie at a multiple of 8

  // `barriers` is their shared address; `rank_m` and `rank_n` are this block's place.
  __device__ __forceinline__ explicit Pipeline(unsigned barriers, int rank_m = 0, int rank_n = 0)
      : barriers_(barriers), rank_m_(rank_m), rank_n_(rank_n) {}

  // Of all stages, before anybody uses one. `readers` warps of each block release a stage.
  __device__ __forceinline__ void init(int readers) const {
    for (int stage = 0; stage < Stages; ++stage) {
      mbarrier_init(full_of(stage), 1);
      mbarrier_init(empty_of(stage), (ClusterM + ClusterN - 1) * readers);
    }
  }

  // The stage that is next, and the barrier on which its loads complete.
  __device__ __forceinline__ int stage() const { return ring_.stage; }
  __device__ __forceinline__ unsigned full() const { return full_of(ring_.stage); }
  __device__ __forceinline__ void advance() { ring_.advance(); }
  __device__ __forceinline__ void skip(int stages) { ring_.skip(stages); }

  // Returns when the stage may be overwritten, and announces `bytes`, those that other blocks load
  // into it included.
  __device__ __forceinline__ void producer_acquire(unsigned bytes) const {
    mbarrier_wait(empty_of(ring_.stage), ring_.parity ^ 1);
    mbarrier_arrive_expect(full(), bytes);
  }

  // Returns when all bytes of the stage have landed.
  __device__ __forceinline__ void consumer_wait() const { mbarrier_wait(full(), ring_.parity); }

  // Called by a whole warp, whose reads of the stage are over. What it read by ordinary
  // instructions needs tma_store_fence() and a __syncwarp() in front; wgmma needs its wait.
  __device__ __forceinline__ void consumer_release(int stage) const {
    const int lane = threadIdx.x % 32;
    if constexpr (kCluster == 1) {
      if (lane == 0) mbarrier_arrive(empty_of(stage));
    } else if (lane < kCluster && shares_with(lane)) {
      mbarrier_arrive_at(empty_of(stage), lane);
    }
  }

 private:
  // Whether this block and the one of rank `rank` may load for each other.
  __device__ __forceinline__ bool shares_with(int rank) const {
    if constexpr (ClusterM == 1 || ClusterN == 1) return true;
    return rank % ClusterM == rank_m_ || rank / ClusterM == rank_n_;
  }
  __device__ __forceinline__ unsigned full_of(int stage) const { return barriers_ + stage * 8; }
  __device__ __forceinline__ unsigned empty_of(int stage) const {
    return barriers_ + 8 * Stages + stage * 8;
  }

  unsigned barriers_;
  int rank_m_, rank_n_;
  Ring<Stages> ring_;
};

}  // namespace kernwright
