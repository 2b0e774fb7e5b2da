#pragma once
// Vectors of weights that all rows share, for kernels over rows with the parameters WEIGHT_EARLY
// and ROWS_AT_ONCE.

#include <kernwright/row.cuh>

namespace kernwright::row {

// Of a group's rows, each of which needs the same weights.
using WeightedFeed = Feed<ROWS_AT_ONCE, HELD>;

// A vector of weights that all rows share, if `Given`: read when it is needed, or with WEIGHT_EARLY
// ahead of the reduction: into registers or, where a block takes rows in turn, once into `Place` of
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
  __device__ __forceinline__ void hold(const WeightedFeed& feed) const {
    if constexpr (Given && kHeld) feed.hold(Place, from_);
  }
  // In every turn, before the reduction. Loads that are known to be read-only, by their kind or as
  // those of a __restrict__ pointer, the compiler would move behind it.
  __device__ __forceinline__ void load_early() {
    if constexpr (!Given || !WEIGHT_EARLY || kHeld) return;
#pragma unroll
    for (int step = 0; step < KEPT; ++step) {
      if (!share_.has(step)) continue;
      early_[step] = load<Load::plain, VECTOR_BYTES>(from_ + share_.column(step));
    }
  }
  // In every turn, after the reduction.
  __device__ __forceinline__ void await(const WeightedFeed& feed) const {
    if constexpr (Given && kHeld) feed.await_held();
  }
  // That of `step`, which the row reaches; 0 where there are no weights.
  __device__ __forceinline__ Vector at(int step, const WeightedFeed& feed) const {
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
