#pragma once

#include <kernwright/math/reduce.cuh>
#include <kernwright/ptx/mbarrier.cuh>
#include <kernwright/ptx/tma.cuh>
#include <kernwright/rows/share.cuh>

namespace kernwright::rows {

// The rows of this thread's group, `Rows` neighbours at once and one turn after another:
//
//   release_next_kernel();
//   await_previous_kernel();
//   Share share;
//   Feed<> feed(tensors, row_count, share);
//   do {
//     feed.load(...) for every tensor; ... feed.reduce<Sum>(...), once, of all that was loaded; ...
//   } while (feed.next());
//
// All threads of a group make every turn, because reductions need them all. If no row is left for
// the group, `active` is false and loaded values are 0. With a ring, which takes one row at once,
// `Held` vectors of weights may be beside it in shared memory. In a cluster the feed of a second
// kind of rows is made after the first feed's first reduction.
template <typename T, Sizes Of>
template <int Rows, int Held>
class Row<T, Of>::Feed {
  static_assert(kStages == 0 ? Held == 0 : Rows == 1);
  static_assert(!kSkewed || Rows == 1);

 public:
  static constexpr int kHeld = Held;
  // If there are enough rows, all rows of a block have one skew, so that it shifts the weights that
  // it holds only once. For this every kClasses-th row is of one class, and so is every kClasses-th
  // cluster, which takes rows of its class.
  static constexpr int kClasses = Held > 0 && kRowBytes <= 16384 ? kSkews : 1;
  static constexpr bool kHoldsRow = kClasses > 1;

 private:
  static constexpr int kSliceBytes = kSliceVectors * kVectorBytes;
  static constexpr int kStageBytes = kStreams * kSliceBytes;
  static constexpr int kHeldBytes = kSliceBytes + kSkewed * kAlignBytes;
  static constexpr int kRingBytes = kBlockRows * kStages * kStageBytes;

 public:
  // Bytes of dynamic shared memory that it takes: the rings of all groups, the weights, the
  // barriers of the weights and of the rings.
  static constexpr int kSharedBytes =
      kStages == 0 ? 0 : kRingBytes + Held * kHeldBytes + 8 + 8 * kStages * kBlockRows * kWarps;

  __device__ __forceinline__ Feed(const Element* const (&tensors)[kStreams], long long row_count,
                                  Share& share)
      : share_(share), row_count_(row_count) {
    block_row_ = first_row();
#pragma unroll
    for (int i = 0; i < kStreams; ++i) tensors_[i] = tensors[i];
    if constexpr (kCluster > 1) {
      if (threadIdx.x == 0) {
        for (int i = 0; i < 2; ++i) mbarrier_init(received(i), 1);
        mbarrier_init_fence();
      }
      cluster_arrive_relaxed();
    }
    share_.follow(row(), row_count_);
    if constexpr (kStages > 0) start();
  }

  // Starts to copy the block's part of a vector of weights, which all rows share, to the place `i`
  // of Held.
  __device__ __forceinline__ void hold(int i, const Element* weights) const {
    if (threadIdx.x != 0) return;
    const int vectors = min(kSliceVectors, kRowVectors - share_.slice());
    mbarrier_arrive_expect(held_barrier(), vectors * kVectorBytes);
    bulk_load(held_place(i), weights + share_.slice() * kLanes, vectors * kVectorBytes,
              held_barrier());
  }
  // Stores the block's part of such a vector to the place `i` of Held if rows are skewed.
  // weights(i) is the i-th vector of a row's weights or, if rows of a block differ, of the weights
  // themselves. The first vector that is held is the one ahead of the slice.
  template <typename Weights>
  __device__ __forceinline__ void hold_each(int i, const Weights& weights) const {
    for (int at = threadIdx.x; at < kSliceVectors + kAligned; at += kThreads) {
      store_shared(held_place(i) + at * kVectorBytes, weights(share_.slice() - kAligned + at));
    }
    mbarrier_arrive(held_barrier());
  }
  // Returns the weights of the vector of `step`. Called after `await_held`.
  template <int Words>
  __device__ __forceinline__ Vector held(int i, int step) const {
    const unsigned from = held_place(i) + share_.place(step) * kVectorBytes;
    if constexpr (!kSkewed) return load_shared<kVectorBytes>(from);
    const unsigned at = from + (kAligned - share_.skew() / kLanes) * kVectorBytes;
    const Vector own = load_shared<kVectorBytes>(at);
    if constexpr (kHoldsRow) return own;
    return lanes_ahead<Words>(load_shared<kVectorBytes>(at - kVectorBytes), own, share_.skew());
  }
  // Waits for the held weights, in the first turn. This comes after a reduction, by when the copies
  // have been started.
  __device__ __forceinline__ void await_held() const {
    if (turns_ == 0) mbarrier_wait(held_barrier(), 0);
  }

  // Returns the first of the group's rows, which the others follow.
  __device__ __forceinline__ long long row() const {
    return block_row_ + threadIdx.x / kRowThreads * (Rows * kClasses);
  }
  // Returns whether there is a row for the group's place `i`. If there is none for the first place,
  // there is none at all.
  __device__ __forceinline__ bool active(int i = 0) const { return row() + i < row_count_; }

  // Returns the element with which the first row begins in a tensor that is written. With several
  // rows it is hidden, because the compiler would share it with the addresses of the loads and take
  // the first row's stores apart into words.
  __device__ __forceinline__ long long first() const {
    long long element = row() * kColumns;
    if constexpr (Rows > 1) hide_from_optimizer(element);
    return element;
  }

  // Loads the kept vectors of the group's row `i` in one of the tensors. The first tensor comes
  // first: its load waits for the ring.
  __device__ __forceinline__ void load(Vector (&x)[kKept], int stream, int i = 0) const {
    load_if(x, stream, [](int) { return true; }, i);
  }
  // Does so for all rows that the group takes at once.
  __device__ __forceinline__ void load(Vector (&x)[Rows][kKept], int stream) const {
#pragma unroll
    for (int i = 0; i < Rows; ++i) load(x[i], stream, i);
  }
  // Does so for the vectors for whose first column `wanted` is true. The others are 0.
  template <typename Wanted>
  __device__ __forceinline__ void load_if(Vector (&x)[kKept], int stream, const Wanted& wanted,
                                          int i = 0) const {
    const bool has_row = active(i);
    const Element* const source = tensors_[stream] + (row() + i) * kColumns;
    if constexpr (kStages > 0) {
      if (has_row && stream == 0) mbarrier_wait(barrier(place_.stage), place_.parity);
    }
    const auto reaches = [&](int step) {
      return has_row && share_.has(step) && wanted(share_.column(step));
    };
    // All loads are issued before the first is used.
#pragma unroll
    for (int step = 0; step < kKept; ++step) {
      x[step] = {};
      if (!reaches(step) || share_.is_cut(step)) continue;
      if constexpr (kStages == 0) {
        x[step] = kernwright::load<kRead, kVectorBytes>(share_.at(source, step));
      } else {
        x[step] = load_shared<kVectorBytes>(stage(place_.stage) + stream * kSliceBytes +
                                            share_.place(step) * kVectorBytes);
      }
    }
    if constexpr (!kSkewed) return;
    if (share_.is_near_end()) {
#pragma unroll
      for (int step = 0; step < kKept; ++step) {
        if (!reaches(step) || !share_.is_cut(step)) continue;
        x[step] = share_.template load_cut<kRead>(source, step);
      }
    }
#pragma unroll
    for (int step = 0; step < kKept; ++step) {
      if (!Share::may_begin(step) && !Share::may_end(step)) continue;
      x[step] = only(x[step], share_.lanes(step));
    }
  }

  // Reduces the threads' x over the whole row, once a turn. Later rows get the row's places in the
  // rings as soon as all threads of a warp have their loads, which the exchange of their parts
  // proves.
  template <typename Reduction>
  __device__ __forceinline__ typename Reduction::Value reduce(typename Reduction::Value x) {
    x = warp_reduce<Reduction, kWarpThreads>(x);
    if constexpr (kStages > 0) {
      __syncwarp();
      if (leads()) fetch(place_.stage);
      place_.advance();
    }
    return combine<Reduction>(x);
  }
  // Reduces over the whole row once more. All threads of the warp and of the row must call this.
  template <typename Reduction>
  __device__ __forceinline__ typename Reduction::Value reduce_again(typename Reduction::Value x) {
    return combine<Reduction>(warp_reduce<Reduction, kWarpThreads>(x));
  }

  // Turns to the group's next rows. Returns false if no group of the block has one.
  __device__ __forceinline__ bool next() {
    if constexpr (kStages == 0) return false;
    block_row_ += stride();
    ++turns_;
    share_.follow(row(), row_count_);
    return block_row_ < row_count_;
  }

 private:
  // Combines the parts of the row's warps. Exchanges alternate between two places: a warp that
  // comes to one has read its parts of the last but one.
  template <typename Reduction>
  __device__ __forceinline__ typename Reduction::Value combine(const typename Reduction::Value& x) {
    if constexpr (kParts == 1) {
      return x;
    } else {
      if constexpr (kCluster > 1) {
        if (exchanges_ == 0) cluster_wait();  // all blocks of the cluster have started
      }
      __shared__ typename Reduction::Value parts[2][kBlockRows][kParts];
      const unsigned exchange = exchanges_++;
      return combine_warps<Reduction, kWarps, kCluster, kBlockRows>(
          x, parts[exchange % 2][threadIdx.x / kRowThreads], received(exchange % 2),
          exchange / 2 % 2);
    }
  }

  static __device__ __forceinline__ bool leads() { return threadIdx.x % kWarpThreads == 0; }
  static __device__ __forceinline__ long long first_row() {
    const unsigned cluster = blockIdx.x / kCluster;
    return static_cast<long long>(cluster / kClasses) * (kBlockRows * Rows * kClasses) +
           cluster % kClasses;
  }
  static __device__ __forceinline__ long long stride() {
    const unsigned clusters = gridDim.x / kCluster;
    const unsigned of_class = (clusters - blockIdx.x / kCluster % kClasses - 1) / kClasses + 1;
    return static_cast<long long>(of_class) * (kBlockRows * kClasses);
  }
  // Returns the barrier at which a block knows that it has the parts of the whole cluster, of every
  // second exchange.
  static __device__ __forceinline__ unsigned received(int i) {
    __shared__ unsigned long long barriers[2];
    return shared_address(&barriers[i]);
  }
  static __device__ __forceinline__ unsigned memory() {
    extern __shared__ __align__(128) unsigned char bytes[];
    return shared_address(bytes) + Of.first_byte;
  }
  static __device__ __forceinline__ unsigned held_place(int i) {
    return memory() + kRingBytes + i * kHeldBytes;
  }
  static __device__ __forceinline__ unsigned held_barrier() { return held_place(Held); }
  __device__ __forceinline__ unsigned stage(int i) const {
    return memory() + (threadIdx.x / kRowThreads * kStages + i) * kStageBytes;
  }
  __device__ __forceinline__ unsigned barrier(int i) const {
    return held_barrier() + 8 + 8 * (threadIdx.x / kWarpThreads * kStages + i);
  }

  __device__ __forceinline__ void start() {
    next_row_ = row();
    if (leads()) {
      for (int i = 0; i < kStages; ++i) mbarrier_init(barrier(i), 1);
      if (Held > 0 && threadIdx.x == 0) {
        mbarrier_init(held_barrier(), kSkewed ? Held * kThreads : Held);
      }
      mbarrier_init_fence();
      for (int i = 0; i < kStages; ++i) fetch(i);
    }
    if constexpr (Held > 0) {
      __syncthreads();
    } else {
      __syncwarp();
    }
  }

  __device__ __forceinline__ void fetch(int i) {
    if (next_row_ >= row_count_) return;
    const int skew = Share::skew_of(next_row_);
    int vectors = share_.run_vectors();
    if constexpr (kSkewed) {  // a vector that is cut is loaded by elements, not from the ring
      const bool whole_alone = Share::is_near_end(next_row_, row_count_);
      vectors = share_.vectors_of_run((skew + kColumns + (whole_alone ? 0 : kLanes - 1)) / kLanes);
    }
    const int bytes = vectors * kVectorBytes;
    mbarrier_arrive_expect(barrier(i), kStreams * bytes);
    if ((!kSkewed && kShortestRun > 0) || bytes > 0) {
#pragma unroll
      for (int stream = 0; stream < kStreams; ++stream) {
        const Element* const row = tensors_[stream] + next_row_ * kColumns - skew;
        bulk_load(stage(i) + stream * kSliceBytes + share_.run() * kVectorBytes,
                  row + share_.run_vector() * kLanes, bytes, barrier(i));
      }
    }
    next_row_ += stride();
  }

  Share& share_;
  const Element* tensors_[kStreams];
  long long row_count_;
  long long block_row_;
  unsigned turns_ = 0;
  unsigned exchanges_ = 0;
  // Members of the warp's ring. Only its leading thread has a `next_row_`.
  long long next_row_ = 0;
  Ring<(kStages > 0 ? kStages : 1)> place_;
};

}  // namespace kernwright::rows
