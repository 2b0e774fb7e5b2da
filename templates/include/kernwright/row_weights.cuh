#pragma once
// Vectors of weights that all rows share, for kernels over rows with a parameter WEIGHT_EARLY.

#include <kernwright/row.cuh>

namespace kernwright::row {

// A vector of weights that all rows share, if `Given`: read when it is needed, or with WEIGHT_EARLY
// ahead of the reduction: into registers or, where a block takes several rows, once into `Place` of
// its shared memory.
template <bool Given, int Place>
class Weights {
 public:
  __device__ __forceinline__ Weights(const dtype_t* from, const Share& share)
      : from_(from), share_(share) {}

  // Asks the L2 for what will be loaded. Where the launch starts early the blocks of the first row
  // do so for all, ahead of the feed, which waits for the kernel before.
  __device__ __forceinline__ void prefetch() const {
    if constexpr (!Given) return;
#pragma unroll
    for (int step = 0; step < KEPT; ++step) {
      if (share_.has(step)) prefetch_line(from_ + share_.column(step));
    }
  }
  // Once, before the first row.
  __device__ __forceinline__ void hold(const Feed& feed) const {
    if constexpr (Given && kHeld) feed.hold(Place, from_);
  }
  // For every row, before its reduction.
  __device__ __forceinline__ void load_early() {
    if constexpr (!Given || !WEIGHT_EARLY || kHeld) return;
#pragma unroll
    for (int step = 0; step < KEPT; ++step) {
      if (share_.has(step)) early_[step] = load_vector(from_ + share_.column(step));
    }
  }
  // For every row, after its reduction.
  __device__ __forceinline__ void await(const Feed& feed) const {
    if constexpr (Given && kHeld) feed.await_held();
  }
  // That of `step`, which the row reaches; 0 where there are no weights.
  __device__ __forceinline__ Vector at(int step, const Feed& feed) const {
    if constexpr (!Given) {
      return {};
    } else if constexpr (kHeld) {
      return feed.held(Place, step);
    } else if constexpr (WEIGHT_EARLY) {
      return early_[step];
    } else {
      return load_vector(from_ + share_.column(step));
    }
  }

 private:
  static constexpr bool kHeld = HELD > 0;

  const dtype_t* from_;
  const Share& share_;
  Vector early_[KEPT];
};

}  // namespace kernwright::row
