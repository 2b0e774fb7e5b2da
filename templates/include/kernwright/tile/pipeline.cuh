#pragma once
// A ring of stages in shared memory between one thread that fills them by TMA, the producer, and
// warps that read them, the consumers (sm_90). A stage has two barriers: `full` completes when its
// bytes have landed, `empty` when all its readers have released it.
//
// The producer and each consumer have a Pipeline object of their own over the same barriers. It
// knows which stage comes next for them. The order of calls:
//
//   one thread    init(), mbarrier_init_fence(), then a barrier of the block or the cluster
//   the producer  producer_acquire(bytes) or, of a whole warp, warp_acquire(bytes), loads that
//   complete on full(), advance(); in a cluster
//                 producer_drain() at the end
//   a consumer    consumer_wait(), reads of stage(), consumer_release(stage()), advance()
//
// A consumer may advance first and release the stage later, by its number. A consumer that leaves
// some stages to others passes them by skip().
//
// In a cluster of ClusterM x ClusterN blocks a block has rank m + ClusterM * n. Blocks with the
// same m may load for each other, and so may blocks with the same n. So a stage of this block is
// free once the readers in all these blocks have released it.

#include <kernwright/ptx/mbarrier.cuh>

namespace kernwright {

template <int Stages, int ClusterM = 1, int ClusterN = 1>
class Pipeline {
 public:
  static constexpr int kCluster = ClusterM * ClusterN;
  static constexpr int kBytes = 2 * 8 * Stages;  // of the barriers, at a multiple of 8

  // `barriers` is their shared address; `rank_m` and `rank_n` are this block's place among the
  // blocks that load for each other, of which the first has rank `first_rank` in the cluster.
  __device__ __forceinline__ explicit Pipeline(unsigned barriers, int rank_m = 0, int rank_n = 0,
                                               int first_rank = 0)
      : barriers_(barriers), rank_m_(rank_m), rank_n_(rank_n), first_rank_(first_rank) {}

  // Initialises the barriers of all stages. `readers` is the number of warps in each block that
  // release a stage, and `writers` the number of threads that arrive at full().
  __device__ __forceinline__ void init(int readers, int writers = 1) const {
    for (int stage = 0; stage < Stages; ++stage) {
      mbarrier_init(full_of(stage), writers);
      mbarrier_init(empty_of(stage), (ClusterM + ClusterN - 1) * readers);
    }
  }

  // Return the next stage, and the barrier on which its loads complete.
  __device__ __forceinline__ int stage() const { return ring_.stage; }
  __device__ __forceinline__ unsigned full() const { return full_of(ring_.stage); }
  __device__ __forceinline__ void advance() { ring_.advance(); }
  __device__ __forceinline__ void skip(int stages) { ring_.skip(stages); }

  // Waits until the stage may be overwritten.
  __device__ __forceinline__ void producer_wait() const {
    mbarrier_wait(empty_of(ring_.stage), ring_.parity ^ 1);
  }

  // Waits for the stage too, and announces `bytes`. These include the bytes that other blocks load
  // into the stage. Data that TMA does not load is written after producer_wait(), and one thread
  // then calls mbarrier_arrive(full()).
  __device__ __forceinline__ void producer_acquire(unsigned bytes) const {
    producer_wait();
    mbarrier_arrive_expect(full(), bytes);
  }

  // Does the same in lane 0 of a warp, before the other lanes load.
  __device__ __forceinline__ void warp_acquire(unsigned bytes) const {
    if (threadIdx.x % 32 == 0) producer_acquire(bytes);
    __syncwarp();
  }

  // Waits until all stages have been released. Called by the producer of a cluster after its last
  // load. Then no block loads for this one any more or arrives at its barriers, so that it may end
  // whatever the others do.
  __device__ __forceinline__ void producer_drain() {
#pragma unroll
    for (int i = 0; i < Stages; ++i) {
      producer_wait();
      advance();
    }
  }

  // Waits until all bytes of the stage have landed.
  __device__ __forceinline__ void consumer_wait() const { mbarrier_wait(full(), ring_.parity); }

  // Releases the stage. Called by a whole warp after its last read of it. Reads by ordinary
  // instructions need a __syncwarp() before this call, and writes tma_store_fence() too; reads by
  // wgmma need wgmma_wait().
  __device__ __forceinline__ void consumer_release(int stage) const {
    const int lane = threadIdx.x % 32;
    if constexpr (kCluster == 1) {
      if (lane == 0) mbarrier_arrive(empty_of(stage));
    } else if (lane < kCluster && shares_with(lane)) {
      mbarrier_arrive_at(empty_of(stage), first_rank_ + lane);
    }
  }

 private:
  // Returns whether this block and the one of rank `rank` may load for each other.
  __device__ __forceinline__ bool shares_with(int rank) const {
    if constexpr (ClusterM == 1 || ClusterN == 1) return true;
    return rank % ClusterM == rank_m_ || rank / ClusterM == rank_n_;
  }
  __device__ __forceinline__ unsigned full_of(int stage) const { return barriers_ + stage * 8; }
  __device__ __forceinline__ unsigned empty_of(int stage) const {
    return barriers_ + 8 * Stages + stage * 8;
  }

  unsigned barriers_;
  int rank_m_, rank_n_, first_rank_;
  Ring<Stages> ring_;
};

}  // namespace kernwright
