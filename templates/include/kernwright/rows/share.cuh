#pragma once

#include <kernwright/ptx/cluster.cuh>
#include <kernwright/rows/lanes.cuh>

namespace kernwright::rows {

// The vectors of a row that are this thread's. If rows are skewed they differ between rows, and the
// answers hold for the row that the share follows.
template <typename T, Sizes Of>
class Row<T, Of>::Share {
 public:
  __device__ __forceinline__ Share() {
    if constexpr (kCluster > 1) slice_ = cluster_rank() * kSliceVectors;
    run_ = threadIdx.x % kRowThreads / kRunThreads * kRun;
    first_ = run_ + threadIdx.x % kRunThreads;
    if constexpr (!kSkewed && kShortestRun < kRun) run_vectors_ = vectors_of_run(kRowVectors);
  }
  // Turns to a row of `row_count`. Must be called before any question about the row.
  __device__ __forceinline__ void follow(long long row, long long row_count) {
    if constexpr (kSkewed) {
      skew_ = skew_of(row);
      run_vectors_ = vectors_of_run((skew_ + kColumns + kLanes - 1) / kLanes);
      is_near_end_ = is_near_end(row, row_count);
    }
  }
  // Returns whether the last vector of a row may reach beyond the end of the tensor, and so be cut.
  static __device__ __forceinline__ bool is_near_end(long long row, long long row_count) {
    return row + (kLanes + kColumns - 1) / kColumns >= row_count;
  }
  // Returns the lanes ahead of a row's first element.
  static __device__ __forceinline__ int skew_of(long long row) {
    return kSkewed
               ? static_cast<unsigned>(row) * static_cast<unsigned>(kColumns) % (kAligned * kLanes)
               : 0;
  }
  __device__ __forceinline__ int skew() const { return skew_; }
  // Returns whether the row reaches this thread in `step`. If the runs are equal, the compiler
  // knows it for all steps but the last.
  __device__ __forceinline__ bool has(int step) const {
    const bool begun = kAligned == 1 || !may_begin(step) || column(step) > -kLanes;
    return begun && ((step + 1) * kRunThreads <= kShortestRun || place(step) < run_ + run_vectors_);
  }
  // Return whether a row may begin in a vector of `step`, or end in one. The compiler knows both.
  static __device__ __forceinline__ bool may_begin(int step) {
    return kSkewed && step * kRunThreads < kAligned;
  }
  static __device__ __forceinline__ bool may_end(int step) {
    return kSkewed && (step + 1) * kRunThreads >= kShortestRun;
  }
  // Returns true in the first thread of the row.
  __device__ __forceinline__ bool leads() const { return slice_ + first_ == 0; }
  // Return the place of the vector of `step` in the block's slice, and in the row.
  __device__ __forceinline__ int place(int step) const { return step * kRunThreads + first_; }
  __device__ __forceinline__ int vector(int step) const { return slice_ + place(step); }
  // Returns the column of its first lane, which is before the row if the row begins in the vector.
  __device__ __forceinline__ int column(int step) const { return vector(step) * kLanes - skew_; }
  // Returns the place of the vector of `step` in a row that begins at `row`, of this or another
  // tensor. Its distance from the place of the first step is known to the compiler.
  template <typename U>
  __device__ __forceinline__ U* at(U* row, int step) const {
    if constexpr (!kSkewed) return row + column(step);
    return row + column(0) + step * (kRunThreads * kLanes);
  }
  // Returns which of its lanes are the row's. The compiler knows it for all but the first and last
  // steps.
  __device__ __forceinline__ Lanes lanes(int step) const {
    Lanes own;
    if (may_begin(step)) own.bits &= Lanes::kAll << max(-column(step), 0);
    if (may_end(step)) own.bits &= ~(~0u << min(kColumns - column(step), kLanes));
    return own;
  }
  // Returns whether the tensor may end in the vector of `step`, so that it is not read as a whole.
  __device__ __forceinline__ bool is_cut(int step) const {
    return may_end(step) && is_near_end_ && column(step) + kLanes > kColumns;
  }
  // Returns the first vector of the block's slice.
  __device__ __forceinline__ int slice() const { return slice_; }
  // Return the thread's run: its place in the slice, its first vector in the row, and how many
  // vectors of a row of `row_vectors` are in it.
  __device__ __forceinline__ int run() const { return run_; }
  __device__ __forceinline__ int run_vector() const { return slice_ + run_; }
  __device__ __forceinline__ int vectors_of_run(int row_vectors) const {
    return min(max(min(kSliceVectors, row_vectors - slice_) - run_, 0), kRun);
  }
  __device__ __forceinline__ int run_vectors() const { return run_vectors_; }
  // Returns whether this row is near the end. The compiler knows it if no row is skewed.
  __device__ __forceinline__ bool is_near_end() const { return kSkewed && is_near_end_; }

  // Loads the vector of `step` of the row that begins at `row`, which has it.
  template <Load Hint>
  __device__ __forceinline__ Vector load_from(const Element* row, int step) const {
    if (is_cut(step)) return load_cut<Hint>(row, step);
    const Vector x = load<Hint, kVectorBytes>(at(row, step));
    return may_begin(step) || may_end(step) ? only(x, lanes(step)) : x;
  }
  // Loads a vector that is cut: the row's lanes are read one by one.
  template <Load Hint>
  __device__ __forceinline__ Vector load_cut(const Element* row, int step) const {
    const Lanes own = lanes(step);
    Vector x{};
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      if (own.has(i)) set_element(x, i, load<Hint, sizeof(Element)>(at(row, step) + i));
    }
    return x;
  }
  // Writes the vector of `step` to the row that begins at `row`.
  __device__ __forceinline__ void store_to(Element* row, int step, const Vector& x) const {
    if (may_begin(step) || may_end(step)) {
      store_some(at(row, step), x, lanes(step).bits);
    } else {
      store<Store::plain>(at(row, step), x);
    }
  }
  // Stores values, which are rounded to the type of the result.
  template <typename Out>
  __device__ __forceinline__ void store_to(Out* row, int step, const float (&value)[kLanes]) const {
    if (may_begin(step) || may_end(step)) {
      store_some_elements(at(row, step), value, lanes(step).bits);
    } else {
      store_elements<Store::plain>(at(row, step), value);
    }
  }

 private:
  int slice_ = 0;
  int run_;
  int first_;
  int run_vectors_ = kRun;
  int skew_ = 0;
  bool is_near_end_ = false;
};

}  // namespace kernwright::rows
