#pragma once
// Sums of the elements of rows and of their squares, for kernels over rows with the constant
// TENSOR_SUMS: whether the tensor cores add, three instructions a vector, where unpacking it,
// adding and squaring take 24. They take 16-bit elements in vectors of 16 bytes, and four lanes or
// more of a row: a warp's vectors are the 16 rows of a matrix, of which four lanes hold two.

#include <kernwright/ptx/mma.cuh>
#include <kernwright/rows/row.cuh>

namespace kernwright::row {

// Of one of a group's rows. As the tensor cores see all of a warp, its lanes add together; a vector
// that the row does not reach is 0.
class VectorSums {
 public:
  template <int Bytes>
  __device__ __forceinline__ void add(const Packed<Bytes>& x) {
    if constexpr (TENSOR_SUMS) {
      const unsigned ones = ones_word<dtype_t>();
      mma_m16n8<dtype_t>(elements_, x.word, ones, ones);
      // Times its own transpose: the products of each row with itself are the diagonal.
      mma_m16n8<dtype_t>(upper_, x.word, x.word[0], x.word[2]);
      mma_m16n8<dtype_t>(lower_, x.word, x.word[1], x.word[3]);
    } else {
      add_alone(x);
    }
  }
  // The same by this lane alone.
  __device__ __forceinline__ void add_alone(const Vector& x) {
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      const float v = lane<dtype_t>(x, i);
      sum_ += v;
      squares_ += v * v;
    }
  }

  // The lane's part of the sum of the elements, and of that of the squares.
  __device__ __forceinline__ float elements() const {
    float part = sum_;
    if constexpr (TENSOR_SUMS) part += threadIdx.x % 4 == 0 ? elements_[0] + elements_[2] : 0.0f;
    return part;
  }
  __device__ __forceinline__ float squares() const {
    float part = squares_;
    if constexpr (TENSOR_SUMS) {
      const int row = threadIdx.x % 32 / 4;  // the lane holds columns 2 * (lane % 4) and the next
      const float own = row % 2 == 0 ? upper_[0] + lower_[2] : upper_[1] + lower_[3];
      part += threadIdx.x % 4 == row / 2 ? own : 0.0f;
    }
    return part;
  }

 private:
  float sum_ = 0;
  float squares_ = 0;
  float elements_[4] = {};
  float upper_[4] = {};  // of rows 0 to 7 with rows 0 to 7
  float lower_[4] = {};  // of rows 8 to 15 with rows 8 to 15, in the lower half
};

}  // namespace kernwright::row
