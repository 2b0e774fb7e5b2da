#pragma once
// Vectors of weights that all rows share.

#include <kernwright/rows/feed.cuh>

namespace kernwright::rows {

// A vector of weights that all rows of a RowFeed share, if `Given`. It is read when it is needed,
// or with `Early` ahead of the reduction: into registers or, if the feed holds weights, once into
// `Place` of its shared memory.
template <typename T, Sizes Of>
template <typename RowFeed, bool Given, int Place, bool Early>
class Row<T, Of>::Weights {
 public:
  // True if rows of a block are skewed differently. The code that reads weights is then compiled
  // once for each number of whole words by which they are shifted, and each row takes one of these
  // copies.
  static constexpr bool kWordsVary = Given && !RowFeed::kHoldsRow;

  __device__ __forceinline__ Weights(const Element* from, const Share& share)
      : from_(from), share_(share) {}

  // Prefetches the weights to the L2. If the launch starts early, the blocks of the first row do so
  // for all blocks, before they wait for the previous kernel.
  __device__ __forceinline__ void prefetch() const {
    if constexpr (!Given) return;
#pragma unroll
    for (int step = 0; step < kKept; ++step) {
      const int at = share_.vector(step) * kLanes;
      if (kSkewed ? at < kColumns : share_.has(step)) prefetch_line(from_ + at);
    }
  }
  // Starts to load the held weights, once, before the first row.
  __device__ __forceinline__ void hold(const RowFeed& feed) const {
    if constexpr (!Given || !kHeld) return;
    if constexpr (kSkewed) {
      feed.hold_each(Place, [&](int vector) {
        const Vector own = load_anywhere<kRead>(vector);
        if constexpr (!RowFeed::kHoldsRow) return own;
        return any_lanes_ahead(load_anywhere<kRead>(vector - 1), own, share_.skew());
      });
    } else {
      feed.hold(Place, from_);
    }
  }
  // Loads the weights that are read early, in every turn, before the reduction. The loads are plain
  // ones, because the compiler would move loads that it knows to be read-only behind the reduction.
  __device__ __forceinline__ void load_early() {
    if constexpr (!Given || !Early || kHeld) return;
#pragma unroll
    for (int step = 0; step < kKept; ++step) {
      if (!share_.has(step)) continue;
      early_[step] = load_vector<Load::plain>(place(step), step);
    }
  }
  // Waits for the held weights, in every turn, after the reduction.
  __device__ __forceinline__ void await(const RowFeed& feed) const {
    if constexpr (Given && kHeld) feed.await_held();
  }
  // Returns the weights of the vector of `step`, which the row reaches, if the row's skew has
  // `Words` whole words. They are 0 if there are none.
  template <int Words>
  __device__ __forceinline__ Vector at(int step, const RowFeed& feed) const {
    if constexpr (!Given) {
      return {};
    } else if constexpr (kHeld) {
      return feed.template held<Words>(Place, step);
    } else if constexpr (Early) {
      return of_row<Words>(early_[step], step);
    } else {
      return of_row<Words>(load_vector<kRead>(place(step), step), step);
    }
  }

 private:
  static constexpr bool kHeld = RowFeed::kHeld > 0;

  // Returns the vector of the weights that has the weights of the last lane of `step`.
  __device__ __forceinline__ int place(int step) const {
    return share_.vector(step) - share_.skew() / kLanes;
  }
  // Returns the weights of the row's vector of `step`. The weights of its last lane are in
  // `second`.
  template <int Words>
  __device__ __forceinline__ Vector of_row(const Vector& second, int step) const {
    if constexpr (!kSkewed) return second;
    const int before = place(step) - 1;
    const bool leads = Share::may_begin(step) && before < 0;
    return lanes_ahead<Words>(load_vector<kRead>(leads ? 0 : before, step), second, share_.skew());
  }
  // Returns the vector at `place`, which is the vector of `step` or the one ahead of it.
  template <Load Hint>
  __device__ __forceinline__ Vector load_vector(int place, int step) const {
    if (Share::may_end(step)) return load_anywhere<Hint>(place);
    return load<Hint, kVectorBytes>(from_ + place * kLanes);
  }
  // Returns the vector at any place, which may be outside the weights or be cut by their end. Lanes
  // that the weights do not have are 0.
  template <Load Hint>
  __device__ __forceinline__ Vector load_anywhere(int place) const {
    const Element* const from = from_ + place * kLanes;
    Vector x{};
    if (place >= 0 && place < kColumns / kLanes) x = load<Hint, kVectorBytes>(from);
    if (place != kColumns / kLanes) return x;
#pragma unroll
    for (int i = 0; i < kColumns % kLanes; ++i) {
      set_element(x, i, load<Hint, sizeof(Element)>(from + i));
    }
    return x;
  }

  const Element* from_;
  const Share& share_;
  Vector early_[kKept];
};

}  // namespace kernwright::rows
