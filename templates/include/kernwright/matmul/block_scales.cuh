#pragma once
// Products of fp8 operands whose blocks have scales in fp32: one for each 128 of k of a row of a,
// and one for 128 of k by 128 rows of b. The tensor cores sum 128 of k, a part, and CUDA cores
// multiply it by its scales and add it to sums in fp32.
//
// Scales travel with the stage of operands that they belong to. They are in shared memory as
// StageScales, which a warp of its own fills by asynchronous copies, since TMA cannot address rows
// of any length. The order of calls, beside those of a Pipeline (pipeline.cuh) whose init() was
// called with 1 + kScaleWriters writers:
//
//   the scales' warp  producer_wait(), load(...) for each 128 of k of the stage, arrive(full()),
//                     advance()
//   a consumer        consumer_wait(); RowFactors or ColumnFactors of its part, while the tensor
//                     cores multiply; add(acc, part) when they have; then it releases the stage
//
// If the rows of a are the rows of the tensor cores' product, factors belong to rows, and a tile of
// columns meets one or two blocks of b. If operands are swapped, factors belong to columns, and all
// rows of a consumer are in one block of b.

#include <kernwright/ptx/cp_async.cuh>
#include <kernwright/ptx/mbarrier.cuh>
#include <kernwright/ptx/stmatrix.cuh>
#include <kernwright/tile/accumulator.cuh>

namespace kernwright {

constexpr int kScaleBlock = 128;   // of k, and rows of b, that share a scale
constexpr int kScaleWriters = 32;  // threads that arrive at a stage's barrier for its scales

// The scales of one product in global memory.
struct ScaleTensors {
  const float* a;         // [ceil(k / 128), m]
  const float* b;         // [ceil(n / 128), ceil(k / 128)], rows lds apart
  int m, n, lds, blocks;  // blocks of k
};

// The scales of `Rows` rows of a and of two blocks of b, for one block of k, in shared memory.
template <int Rows>
struct StageScales {
  static constexpr int kBytes = (Rows + 4) * 4;

  unsigned address;  // a multiple of 16

  // Copies the scales for block `block` of k, from row `row_a` of a and from the block of row
  // `row_b` of b on; zeros replace elements beyond the tensors. Run by a whole warp.
  __device__ __forceinline__ void load(const ScaleTensors& from, int row_a, int row_b,
                                       int block) const {
    const int lane = threadIdx.x % 32;
    const float* const of_a = from.a + (static_cast<long long>(block) * from.m + row_a);
#pragma unroll
    for (int i = lane; i < Rows; i += 32) {
      const bool inside = row_a + i < from.m && block < from.blocks;
      cp_async<4>(address + i * 4, inside ? of_a + i : from.a, inside ? 4 : 0);
    }
    if (lane < 2) {
      const int row = row_b / kScaleBlock + lane;
      const bool inside = row * kScaleBlock < from.n && block < from.blocks;
      const float* const of_b = from.b + static_cast<long long>(row) * from.lds + block;
      cp_async<4>(address + (Rows + lane) * 4, inside ? of_b : from.b, inside ? 4 : 0);
    }
  }

  __device__ __forceinline__ unsigned of_a(int row) const { return address + row * 4; }
  __device__ __forceinline__ float of_b(int block) const {
    return load_shared<float>(address + (Rows + block) * 4);
  }
};

// Returns the scales of product `index` of a batch, whose tensors follow each other.
__device__ __forceinline__ ScaleTensors scales_of(const ScaleTensors& all, int index) {
  ScaleTensors one = all;
  one.a += static_cast<long long>(index) * all.blocks * all.m;
  one.b += static_cast<long long>(index) * ((all.n + kScaleBlock - 1) / kScaleBlock) * all.lds;
  return one;
}

// Arrives at `barrier` once all copies of this thread have landed.
__device__ __forceinline__ void arrive_with_scales(unsigned barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ constexpr int common_divisor(int a, int b) {
  return b == 0 ? a : common_divisor(b, a % b);
}

// The factors of a part of 64 rows of a and `Columns` rows of b. Tiles begin at multiples of
// Columns.
template <int Columns>
class RowFactors {
 public:
  // `first_row` is the warp's first row in the stage, and `column` the tile's first column.
  template <int Rows>
  __device__ __forceinline__ RowFactors(const StageScales<Rows>& scales, int first_row,
                                        int column) {
    const unsigned row = scales.of_a(first_row + accumulator_row());
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float of_a = load_shared<float>(row + half * 8 * 4);
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        factors_[block][half] = of_a * scales.of_b(block);
      }
    }
    if constexpr (kBlocks > 1) boundary_ = kScaleBlock - column % kScaleBlock;
  }

  // acc += factors * part
  __device__ __forceinline__ void add(float (&acc)[Columns / 2],
                                      const float (&part)[Columns / 2]) const {
#pragma unroll
    for (int first = 0; first < Columns; first += kUnit) {
      const bool second = kBlocks > 1 && first >= boundary_;
      const float upper = second ? factors_[kBlocks - 1][0] : factors_[0][0];
      const float lower = second ? factors_[kBlocks - 1][1] : factors_[0][1];
#pragma unroll
      for (int i = first / 2; i < (first + kUnit) / 2; ++i) {
        acc[i] += (register_row(i) == 0 ? upper : lower) * part[i];
      }
    }
  }

 private:
  // Columns of a tile that are surely in one block, and blocks that it may meet.
  static constexpr int kUnit = common_divisor(Columns, kScaleBlock);
  static constexpr int kBlocks = Columns == kUnit ? 1 : 2;
  static_assert(Columns <= kScaleBlock + kUnit, "a tile would meet three blocks");

  float factors_[kBlocks][2];
  int boundary_ = Columns;  // the first column of the second block
};

// The factors of a part of 64 rows of b, all in one block, and `Rows` rows of a, which are its
// columns. They are read when they are used, so the stage is released after that.
template <int Rows>
class ColumnFactors {
 public:
  // `block` is the block of the rows of b. The stage may have scales of more rows of a.
  template <int StageRows>
  __device__ __forceinline__ explicit ColumnFactors(const StageScales<StageRows>& scales,
                                                    int block = 0)
      : of_a_(scales.of_a(accumulator_column())), of_b_(scales.of_b(block)) {}

  // acc += factors * part
  __device__ __forceinline__ void add(float (&acc)[Rows / 2], const float (&part)[Rows / 2]) const {
#pragma unroll
    for (int first = 0; first < Rows; first += 8) {
      const float2 of_a = load_shared_pair<float>(of_a_ + first * 4);
      const float even = of_a.x * of_b_, odd = of_a.y * of_b_;
#pragma unroll
      for (int i = first / 2; i < first / 2 + 4; ++i) acc[i] += (i % 2 == 0 ? even : odd) * part[i];
    }
  }

 private:
  unsigned of_a_;
  float of_b_;
};

}  // namespace kernwright
