#pragma once
// What kernels over rows share: a matrix [rows, columns] of dtype_t whose rows are each read once
// by a group of THREADS_PER_ROW neighbouring threads in each of CLUSTER blocks, ROWS_PER_BLOCK
// groups to a block. A row is made of ROW_VECTORS vectors of VECTOR_BYTES, of which each block of a
// cluster has a slice of SLICE_VECTORS; the vectors of one step lie side by side, so that a warp's
// accesses are contiguous. Of its STEPS vectors a thread keeps the first KEPT in registers.
//
// With STAGES = 0 a block owns ROWS_PER_BLOCK rows and loads them straight into registers. With
// more it takes rows in turn, and each group has a ring of that many rows in shared memory, which
// bulk copies fill ahead. All these names come from the manifest; STREAMS is how many tensors are
// read.

#include <kernwright/config.cuh>
#include <kernwright/mbarrier.cuh>
#include <kernwright/programmatic.cuh>
#include <kernwright/reduce.cuh>
#include <kernwright/tma.cuh>
#include <kernwright/vector.cuh>

namespace kernwright::row {

using namespace kernwright::config;

constexpr int kLanes = VECTOR_BYTES / sizeof(dtype_t);

using Vector = Packed<VECTOR_BYTES>;

// This thread's vectors of any row.
class Share {
 public:
  __device__ __forceinline__ Share() {
    first_ = threadIdx.x % THREADS_PER_ROW;
    if constexpr (CLUSTER > 1) slice_ = cluster_rank() * SLICE_VECTORS;
  }
  // Whether the row reaches this thread in `step`: known to the compiler for all but the last,
  // where the blocks of a cluster have equal slices.
  __device__ __forceinline__ bool has(int step) const {
    if constexpr (ROW_VECTORS == SLICE_VECTORS * CLUSTER) {
      return (step + 1) * THREADS_PER_ROW <= SLICE_VECTORS || place(step) < SLICE_VECTORS;
    } else {
      return place(step) < slice_vectors();
    }
  }
  // True in the first thread of the row.
  __device__ __forceinline__ bool leads() const { return slice_ + first_ == 0; }
  // The place of the vector of `step` in the block's slice.
  __device__ __forceinline__ int place(int step) const { return step * THREADS_PER_ROW + first_; }
  // The column of its first element.
  __device__ __forceinline__ int column(int step) const { return (slice_ + place(step)) * kLanes; }
  // The first column of the block's slice, and its vectors; the last one's may be fewer.
  __device__ __forceinline__ int slice_column() const { return slice_ * kLanes; }
  __device__ __forceinline__ int slice_vectors() const {
    return min(SLICE_VECTORS, ROW_VECTORS - slice_);
  }

 private:
  int first_;
  int slice_ = 0;
};

// Through the L1: loads that pass it by (no_allocate) cost 5 % of the rate of a stream on an H200.
__device__ __forceinline__ Vector load_vector(const dtype_t* from) {
  return load<Load::read_only, VECTOR_BYTES>(from);
}

// Loads the kept vectors of one row, or of a vector of weights; those past the row's end are 0.
__device__ __forceinline__ void load_kept(Vector (&x)[KEPT], const dtype_t* row,
                                          const Share& share) {
#pragma unroll
  for (int step = 0; step < KEPT; ++step) {
    x[step] = {};
    if (share.has(step)) x[step] = load_vector(row + share.column(step));
  }
}

// Asks the L2 for the weights that load_kept will load. Where the launch starts early the blocks of
// the first row do so for all, ahead of the feed, which waits for the kernel before.
__device__ __forceinline__ void prefetch_kept(const dtype_t* row, const Share& share) {
#pragma unroll
  for (int step = 0; step < KEPT; ++step) {
    if (share.has(step)) prefetch_line(row + share.column(step));
  }
}

// a + b, rounded: where a sum is written, that is also what is worked on.
__device__ __forceinline__ Vector add(const Vector& a, const Vector& b) {
  float value[kLanes];
#pragma unroll
  for (int i = 0; i < kLanes; ++i) value[i] = lane<dtype_t>(a, i) + lane<dtype_t>(b, i);
  return pack<dtype_t, VECTOR_BYTES>(value);
}

// The rows of this thread's group, one after another:
//
//   const Share share;
//   Feed feed(tensors, row_count, share);
//   do {
//     feed.load(...) for every tensor; ... feed.reduce<Sum>(...), once; feed.release(); ...
//   } while (feed.next());
//
// All threads of a block make every turn, because reductions need them all; where there is no row
// left for a group, `active` is false and what was loaded is 0.
class Feed {
 public:
  __device__ __forceinline__ Feed(const dtype_t* const (&tensors)[STREAMS], long long row_count,
                                  const Share& share)
      : share_(share), row_count_(row_count) {
    release_next_kernel();
    await_previous_kernel();
    block_row_ = static_cast<long long>(blockIdx.x / CLUSTER) * ROWS_PER_BLOCK;
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

  __device__ __forceinline__ long long row() const {
    return block_row_ + threadIdx.x / THREADS_PER_ROW;
  }
  __device__ __forceinline__ bool active() const { return row() < row_count_; }

  // The kept vectors of the group's row in one of the tensors, the first of them first.
  __device__ __forceinline__ void load(Vector (&x)[KEPT], int stream) const {
    load_if(x, stream, [](int) { return true; });
  }
  // Those of which `wanted` is true of the first column; the others are 0.
  template <typename Wanted>
  __device__ __forceinline__ void load_if(Vector (&x)[KEPT], int stream,
                                          const Wanted& wanted) const {
    const bool has_row = active();
    const dtype_t* const source = tensors_[stream] + row() * columns;
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

  // Over the whole row.
  template <typename Reduction>
  __device__ __forceinline__ typename Reduction::Value reduce(typename Reduction::Value x) {
    __shared__ typename Reduction::Value parts[2][ROWS_PER_BLOCK][PARTS];
    if constexpr (CLUSTER > 1) {
      if (!started_) cluster_wait();
      started_ = true;
    }
    return group_reduce<Reduction, THREADS_PER_ROW, CLUSTER>(
        x, parts[turns_ % 2][threadIdx.x / THREADS_PER_ROW], received(turns_ % 2), turns_ / 2 % 2);
  }

  // Gives the row's place in the ring to a later one; the reduction lies between this and the
  // loads.
  __device__ __forceinline__ void release() {
    if constexpr (STAGES > 0) {
      if constexpr (THREADS_PER_ROW <= 32) __syncwarp();
      if (leads()) fetch(place_.stage);
      place_.advance();
    }
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

  static __device__ __forceinline__ bool leads() { return threadIdx.x % THREADS_PER_ROW == 0; }
  static __device__ __forceinline__ long long stride() {
    return static_cast<long long>(gridDim.x / CLUSTER) * ROWS_PER_BLOCK;
  }
  // Where the parts of every second turn have come from all of the cluster.
  static __device__ __forceinline__ unsigned received(int i) {
    __shared__ unsigned long long barriers[2];
    return shared_address(&barriers[i]);
  }
  __device__ __forceinline__ unsigned stage(int i) const { return stages_ + i * kStageBytes; }
  __device__ __forceinline__ unsigned barrier(int i) const { return barriers_ + 8 * i; }

  __device__ __forceinline__ void start() {
    extern __shared__ __align__(128) unsigned char memory[];
    const int group = threadIdx.x / THREADS_PER_ROW;
    stages_ = shared_address(memory) + group * STAGES * kStageBytes;
    barriers_ = shared_address(memory) + ROWS_PER_BLOCK * STAGES * kStageBytes + 8 * STAGES * group;
    next_row_ = row();
    if (leads()) {
      for (int i = 0; i < STAGES; ++i) mbarrier_init(barrier(i), 1);
      mbarrier_init_fence();
      for (int i = 0; i < STAGES; ++i) fetch(i);
    }
    __syncthreads();
  }

  __device__ __forceinline__ void fetch(int i) {
    if (next_row_ >= row_count_) return;
    const int bytes = share_.slice_vectors() * VECTOR_BYTES;
    mbarrier_arrive_expect(barrier(i), STREAMS * bytes);
#pragma unroll
    for (int stream = 0; stream < STREAMS; ++stream) {
      const dtype_t* const row = tensors_[stream] + next_row_ * columns;
      bulk_load(stage(i) + stream * kSliceBytes, row + share_.slice_column(), bytes, barrier(i));
    }
    next_row_ += stride();
  }

  Share share_;
  const dtype_t* tensors_[STREAMS];
  long long row_count_;
  long long block_row_;
  unsigned turns_ = 0;
  bool started_ = false;  // all blocks of the cluster have
  // Of the ring; `next_row_` is the leading thread's.
  unsigned stages_ = 0;
  unsigned barriers_ = 0;
  long long next_row_ = 0;
  Ring<max(STAGES, 1)> place_;
};

}  // namespace kernwright::row
