#pragma once
// Sums of the elements of rows and of their squares. The tensor cores can add them, by three
// instructions a vector, while unpacking it, adding and squaring take 24. They take 16-bit elements
// in vectors of 16 bytes, and four lanes or more of a row: a warp's vectors are the 16 rows of a
// matrix, of which four lanes hold two.

#include <kernwright/math/vector.cuh>
#include <kernwright/ptx/mma.cuh>

namespace kernwright::rows {

// Sums of one row of T, with the tensor cores if `Tensor`. As these see all of a warp, its lanes
// add together; a vector that the row does not reach is 0.
template <typename T, bool Tensor>
class VectorSums {
 public:
  __device__ __forceinline__ void add(const Packed<16>& x) {
    if constexpr (Tensor) {
      const unsigned ones = ones_word<T>();
      mma_m16n8<T>(elements_, x.word, ones, ones);
      // Times its own transpose: the products of each row with itself are the diagonal.
      mma_m16n8<T>(upper_, x.word, x.word[0], x.word[2]);
      mma_m16n8<T>(lower_, x.word, x.word[1], x.word[3]);
    } else {
      add_alone(x);
    }
  }
  // Does the same by this lane alone.
  __device__ __forceinline__ void add_alone(const Packed<16>& x) {
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      const float v = lane<T>(x, i);
      sum_ += v;
      squares_ += v * v;
    }
  }

  // Return the lane's part of the sum of the elements, and of the sum of the squares.
  __device__ __forceinline__ float elements() const {
    float part = sum_;
    if constexpr (Tensor) part += threadIdx.x % 4 == 0 ? elements_[0] + elements_[2] : 0.0f;
    return part;
  }
  __device__ __forceinline__ float squares() const {
    float part = squares_;
    if constexpr (Tensor) {
      const int row = threadIdx.x % 32 / 4;  // the lane holds columns 2 * (lane % 4) and the next
      const float own = row % 2 == 0 ? upper_[0] + lower_[2] : upper_[1] + lower_[3];
      part += threadIdx.x % 4 == row / 2 ? own : 0.0f;
    }
    return part;
  }

 private:
  static constexpr int kLanes = 16 / sizeof(T);

  float sum_ = 0;
  float squares_ = 0;
  float elements_[4] = {};
  float upper_[4] = {};  // of rows 0 to 7 with rows 0 to 7
  float lower_[4] = {};  // of rows 8 to 15 with rows 8 to 15, in the lower half
};

}  // namespace kernwright::rows
