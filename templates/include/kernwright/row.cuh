#pragma once
// What kernels over rows share: a matrix [rows, columns] of dtype_t whose rows are each read once
// by a group of THREADS_PER_ROW neighbouring threads in each of CLUSTER blocks, ROWS_PER_BLOCK
// groups to a block. A row is made of ROW_VECTORS vectors of VECTOR_BYTES, of which each block of a
// cluster has a slice of SLICE_VECTORS; the vectors of one step lie side by side, so that a warp's
// accesses are contiguous. Of its STEPS vectors a thread keeps the first KEPT in registers.
//
// With STAGES = 0 a block owns ROWS_PER_BLOCK rows, or several times as many, and loads them
// straight into registers. With more it takes rows in turn; each warp has a run of the slice for
// its own, and a ring of the runs of that many rows in shared memory, which bulk copies fill ahead:
// as it waits for no other warp, a run's place is refilled as soon as the run is in registers. All
// these names come from the manifest; STREAMS is how many tensors are read.

#include <kernwright/config.cuh>
#include <kernwright/mbarrier.cuh>
#include <kernwright/programmatic.cuh>
#include <kernwright/reduce.cuh>
#include <kernwright/tma.cuh>
#include <kernwright/vector.cuh>

namespace kernwright::row {

using namespace kernwright::config;

constexpr int kLanes = VECTOR_BYTES / sizeof(dtype_t);
constexpr int kWarpThreads = min(THREADS_PER_ROW, 32);
constexpr int kWarps = THREADS_PER_ROW / kWarpThreads;
// The threads that share a run: with a ring a warp, else the group, which then reads its slice in
// order: blocks that come and go are 2 % slower where every warp goes its own way.
constexpr int kRunThreads = STAGES > 0 ? kWarpThreads : THREADS_PER_ROW;
constexpr int kRuns = THREADS_PER_ROW / kRunThreads;
// Where there are several they are whole lines of 128 bytes.
constexpr int kRunUnit = kRuns > 1 ? 128 / VECTOR_BYTES : 1;
constexpr int kRun = (SLICE_VECTORS + kRuns * kRunUnit - 1) / (kRuns * kRunUnit) * kRunUnit;
static_assert(kRun <= STEPS * kRunThreads);
// The last run of the last slice may be shorter, and those before it too.
constexpr int kShortestRun = ROW_VECTORS - (CLUSTER - 1) * SLICE_VECTORS - (kRuns - 1) * kRun;

using Vector = Packed<VECTOR_BYTES>;

// This thread's vectors of any row.
class Share {
 public:
  __device__ __forceinline__ Share() {
    if constexpr (CLUSTER > 1) slice_ = cluster_rank() * SLICE_VECTORS;
    run_ = threadIdx.x % THREADS_PER_ROW / kRunThreads * kRun;
    first_ = run_ + threadIdx.x % kRunThreads;
    if constexpr (kShortestRun < kRun) {
      run_vectors_ = min(max(slice_vectors() - run_, 0), kRun);
    }
  }
  // Whether the row reaches this thread in `step`: known to the compiler for all steps but the
  // last, where the runs are equal.
  __device__ __forceinline__ bool has(int step) const {
    return (step + 1) * kRunThreads <= kShortestRun || place(step) < run_ + run_vectors_;
  }
  // True in the first thread of the row.
  __device__ __forceinline__ bool leads() const { return slice_ + first_ == 0; }
  // The place of the vector of `step` in the block's slice.
  __device__ __forceinline__ int place(int step) const { return step * kRunThreads + first_; }
  // The column of its first element.
  __device__ __forceinline__ int column(int step) const { return (slice_ + place(step)) * kLanes; }
  // The block's slice: its first column, its length in vectors.
  __device__ __forceinline__ int slice_column() const { return slice_ * kLanes; }
  __device__ __forceinline__ int slice_vectors() const {
    return min(SLICE_VECTORS, ROW_VECTORS - slice_);
  }
  // The thread's run: its place in the slice, its first column, its length in vectors.
  __device__ __forceinline__ int run() const { return run_; }
  __device__ __forceinline__ int run_column() const { return (slice_ + run_) * kLanes; }
  __device__ __forceinline__ int run_vectors() const { return run_vectors_; }

 private:
  int slice_ = 0;
  int run_;
  int first_;
  int run_vectors_ = kRun;
};

// Through the L1: loads that pass it by (no_allocate) cost 5 % of the rate of a stream on an H200.
__device__ __forceinline__ Vector load_vector(const dtype_t* from) {
  return load<Load::read_only, VECTOR_BYTES>(from);
}

// a + b, rounded: where a sum is written, that is also what is worked on.
__device__ __forceinline__ Vector add(const Vector& a, const Vector& b) {
  Vector sum;
#pragma unroll
  for (int i = 0; i < max(VECTOR_BYTES / 4, 1); ++i) {
    sum.word[i] = add_words<dtype_t>(a.word[i], b.word[i]);
  }
  return sum;
}

// The rows of this thread's group, `Rows` neighbours at once and one turn after another:
//
//   const Share share;
//   Feed feed(tensors, row_count, share);
//   do {
//     feed.load(...) for every tensor; ... feed.reduce<Sum>(...), once, of all that was loaded; ...
//   } while (feed.next());
//
// All threads of a group make every turn, because reductions need them all; where there is no row
// left for it, `active` is false and what was loaded is 0. With a ring, which takes one row at
// once, `Held` vectors of weights may lie beside it in shared memory.
template <int Rows = 1, int Held = 0>
class Feed {
  static_assert(STAGES == 0 ? Held == 0 : Rows == 1);

 public:
  __device__ __forceinline__ Feed(const dtype_t* const (&tensors)[STREAMS], long long row_count,
                                  const Share& share)
      : share_(share), row_count_(row_count) {
    release_next_kernel();
    await_previous_kernel();
    block_row_ = static_cast<long long>(blockIdx.x / CLUSTER) * ROWS_PER_BLOCK * Rows;
#pragma unroll
    for (int i = 0; i < STREAMS; ++i) tensors_[i] = tensors[i];
    if constexpr (CLUSTER > 1) {
      if (threadIdx.x == 0) {
        for (int i = 0; i < 2; ++i) mbarrier_init(received(i), 1);
        mbarrier_init_fence();
      }
      cluster_arrive_relaxed();
    }
    if constexpr (STAGES > 0) start();
  }

  // Starts to copy the block's part of a vector of weights, which all rows share, to the place `i`
  // of Held.
  __device__ __forceinline__ void hold(int i, const dtype_t* weights) const {
    if (threadIdx.x != 0) return;
    const int bytes = share_.slice_vectors() * VECTOR_BYTES;
    mbarrier_arrive_expect(held_barrier(), bytes);
    bulk_load(held_place(i), weights + share_.slice_column(), bytes, held_barrier());
  }
  // The vector of `step` there: after a reduction, by when the copies have been started.
  __device__ __forceinline__ Vector held(int i, int step) const {
    return load_shared<VECTOR_BYTES>(held_place(i) + share_.place(step) * VECTOR_BYTES);
  }
  __device__ __forceinline__ void await_held() const {
    if (turns_ == 0) mbarrier_wait(held_barrier(), 0);
  }

  // The first of the group's rows, which the others follow.
  __device__ __forceinline__ long long row() const {
    return block_row_ + threadIdx.x / THREADS_PER_ROW * Rows;
  }
  // Whether there is the group's row `i`; without the first there is none.
  __device__ __forceinline__ bool active(int i = 0) const { return row() + i < row_count_; }

  // Where the first row begins in a tensor that is written. Of several rows the compiler may not
  // share it with the addresses of the loads: it would take the first row's stores apart into
  // words.
  __device__ __forceinline__ long long first() const {
    long long element = row() * columns;
    if constexpr (Rows > 1) asm("" : "+l"(element));
    return element;
  }

  // The kept vectors of the group's row `i` in one of the tensors, the first of them first.
  __device__ __forceinline__ void load(Vector (&x)[KEPT], int stream, int i = 0) const {
    load_if(x, stream, [](int) { return true; }, i);
  }
  // Of all the group's rows, with several at once.
  __device__ __forceinline__ void load(Vector (&x)[Rows][KEPT], int stream) const {
#pragma unroll
    for (int i = 0; i < Rows; ++i) load(x[i], stream, i);
  }
  // Those of which `wanted` is true of the first column; the others are 0.
  template <typename Wanted>
  __device__ __forceinline__ void load_if(Vector (&x)[KEPT], int stream, const Wanted& wanted,
                                          int i = 0) const {
    const bool has_row = active(i);
    const dtype_t* const source = tensors_[stream] + (row() + i) * columns;
    if constexpr (STAGES > 0) {
      if (has_row && stream == 0) mbarrier_wait(barrier(place_.stage), place_.parity);
    }
#pragma unroll
    for (int step = 0; step < KEPT; ++step) {
      x[step] = {};
      const int column = share_.column(step);
      if (!has_row || !share_.has(step) || !wanted(column)) continue;
      if constexpr (STAGES == 0) {
        x[step] = load_vector(source + column);
      } else {
        x[step] = load_shared<VECTOR_BYTES>(stage(place_.stage) + stream * kSliceBytes +
                                            share_.place(step) * VECTOR_BYTES);
      }
    }
  }

  // Over the whole row, once a turn. Its places in the rings are given to later rows as soon as all
  // threads of a warp have what they loaded, which the exchange of their parts proves.
  template <typename Reduction>
  __device__ __forceinline__ typename Reduction::Value reduce(typename Reduction::Value x) {
    x = warp_reduce<Reduction, kWarpThreads>(x);
    if constexpr (STAGES > 0) {
      __syncwarp();
      if (leads()) fetch(place_.stage);
      place_.advance();
    }
    return combine<Reduction>(x);
  }
  // Over the whole row once more, where all threads of a warp and of the row come here.
  template <typename Reduction>
  __device__ __forceinline__ typename Reduction::Value reduce_again(typename Reduction::Value x) {
    return combine<Reduction>(warp_reduce<Reduction, kWarpThreads>(x));
  }

  __device__ __forceinline__ bool next() {
    if constexpr (STAGES == 0) return false;
    block_row_ += stride();
    ++turns_;
    return block_row_ < row_count_;
  }

 private:
  static constexpr int kSliceBytes = SLICE_VECTORS * VECTOR_BYTES;
  static constexpr int kStageBytes = STREAMS * kSliceBytes;

  // Of the parts of warps, which alternates between two places: those who come to the next exchange
  // have read what they wanted of the last but one.
  template <typename Reduction>
  __device__ __forceinline__ typename Reduction::Value combine(const typename Reduction::Value& x) {
    if constexpr (PARTS == 1) {
      return x;
    } else {
      if constexpr (CLUSTER > 1) {
        if (exchanges_ == 0) cluster_wait();  // all blocks of the cluster have started
      }
      __shared__ typename Reduction::Value parts[2][ROWS_PER_BLOCK][PARTS];
      const unsigned exchange = exchanges_++;
      return combine_warps<Reduction, kWarps, CLUSTER, ROWS_PER_BLOCK>(
          x, parts[exchange % 2][threadIdx.x / THREADS_PER_ROW], received(exchange % 2),
          exchange / 2 % 2);
    }
  }

  static __device__ __forceinline__ bool leads() { return threadIdx.x % kWarpThreads == 0; }
  static __device__ __forceinline__ long long stride() {
    return static_cast<long long>(gridDim.x / CLUSTER) * ROWS_PER_BLOCK;
  }
  // Where the parts of every second exchange have come from all of the cluster.
  static __device__ __forceinline__ unsigned received(int i) {
    __shared__ unsigned long long barriers[2];
    return shared_address(&barriers[i]);
  }
  // Shared memory: the rings of all groups, the weights, the barriers of the weights and of the
  // rings.
  static __device__ __forceinline__ unsigned memory() {
    extern __shared__ __align__(128) unsigned char bytes[];
    return shared_address(bytes);
  }
  static __device__ __forceinline__ unsigned held_place(int i) {
    return memory() + ROWS_PER_BLOCK * STAGES * kStageBytes + i * kSliceBytes;
  }
  static __device__ __forceinline__ unsigned held_barrier() { return held_place(Held); }
  __device__ __forceinline__ unsigned stage(int i) const {
    return memory() + (threadIdx.x / THREADS_PER_ROW * STAGES + i) * kStageBytes;
  }
  __device__ __forceinline__ unsigned barrier(int i) const {
    return held_barrier() + 8 + 8 * (threadIdx.x / kWarpThreads * STAGES + i);
  }

  __device__ __forceinline__ void start() {
    next_row_ = row();
    if (leads()) {
      for (int i = 0; i < STAGES; ++i) mbarrier_init(barrier(i), 1);
      if (Held > 0 && threadIdx.x == 0) mbarrier_init(held_barrier(), Held);
      mbarrier_init_fence();
      for (int i = 0; i < STAGES; ++i) fetch(i);
    }
    if constexpr (Held > 0) {
      __syncthreads();
    } else {
      __syncwarp();
    }
  }

  __device__ __forceinline__ void fetch(int i) {
    if (next_row_ >= row_count_) return;
    const int bytes = share_.run_vectors() * VECTOR_BYTES;
    mbarrier_arrive_expect(barrier(i), STREAMS * bytes);
    if (kShortestRun > 0 || bytes > 0) {
#pragma unroll
      for (int stream = 0; stream < STREAMS; ++stream) {
        const dtype_t* const row = tensors_[stream] + next_row_ * columns;
        bulk_load(stage(i) + stream * kSliceBytes + share_.run() * VECTOR_BYTES,
                  row + share_.run_column(), bytes, barrier(i));
      }
    }
    next_row_ += stride();
  }

  Share share_;
  const dtype_t* tensors_[STREAMS];
  long long row_count_;
  long long block_row_;
  unsigned turns_ = 0;
  unsigned exchanges_ = 0;
  // Of the warp's ring; `next_row_` is its leading thread's.
  long long next_row_ = 0;
  Ring<max(STAGES, 1)> place_;
};

}  // namespace kernwright::row
