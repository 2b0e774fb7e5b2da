#pragma once
// Vectors of weights that all rows share.

#include <kernwright/rows/feed.cuh>

namespace kernwright::rows {

// A vector of weights that all rows of a RowFeed share, if `Given`. It is read when it is needed,
// or with `Early` ahead of the reduction: into registers or, where the feed holds weights, once
// into `Place` of its shared memory.
template <typename T, Sizes Of>
template <typename RowFeed, bool Given, int Place, bool Early>
class Row<T, Of>::Weights {
 public:
  // Whether what reads weights is compiled once for each number of whole words by which they are
  // shifted, and each row takes the copy for its own: where rows of a block are skewed differently.
  static constexpr bool kWordsVary = Given && !RowFeed::kHoldsRow;

  __device__ __forceinline__ Weights(const Element* from, const Share& share)
      : from_(from), share_(share) {}

  // Asks the L2 for what will be loaded. Where the launch starts early the blocks of the first row
  // do so for all, ahead of the feed, which waits for the kernel before.
  __device__ __forceinline__ void prefetch() const {
    if constexpr (!Given) return;
#pragma unroll
    for (int step = 0; step < kKept; ++step) {
      const int at = share_.vector(step) * kLanes;
      if (kSkewed ? at < kColumns : share_.has(step)) prefetch_line(from_ + at);
    }
  }
  // Once, before the first row.
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
  // In every turn, before the reduction. Loads that are known to be read-only, by their kind or as
  // those of a __restrict__ pointer, the compiler would move behind it.
  __device__ __forceinline__ void load_early() {
    if constexpr (!Given || !Early || kHeld) return;
#pragma unroll
    for (int step = 0; step < kKept; ++step) {
      if (!share_.has(step)) continue;
      early_[step] = load_vector<Load::plain>(place(step), step);
    }
  }
  // In every turn, after the reduction.
  __device__ __forceinline__ void await(const RowFeed& feed) const {
    if constexpr (Given && kHeld) feed.await_held();
  }
  // That of `step`, which the row reaches, where the row's skew is of `Words` whole words; 0 where
  // there are no weights.
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

  // The vector of the weights in which those of the last lane of `step` lie.
  __device__ __forceinline__ int place(int step) const {
    return share_.vector(step) - share_.skew() / kLanes;
  }
  // The weights of a row's vector, of which the last lane's lie in `second`.
  template <int Words>
  __device__ __forceinline__ Vector of_row(const Vector& second, int step) const {
    if constexpr (!kSkewed) return second;
    const int before = place(step) - 1;
    const bool leads = Share::may_begin(step) && before < 0;
    return lanes_ahead<Words>(load_vector<kRead>(leads ? 0 : before, step), second, share_.skew());
  }
  // The vector at `place`, which is that of `step` or the one ahead of it.
  template <Load Hint>
  __device__ __forceinline__ Vector load_vector(int place, int step) const {
    if (Share::may_end(step)) return load_anywhere<Hint>(place);
    return load<Hint, kVectorBytes>(from_ + place * kLanes);
  }
  // The vector at any place, which may lie outside the weights or be cut by their end: then lanes
  // that are not the row's are 0.
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
