#pragma once
// Products of whole tiles on wgmma (sm_90a): d += a * b^T in fp32, d in registers, b in shared
// memory, a in shared memory or in registers.
//
// A warpgroup holds `Blocks` blocks of 64 rows as float d[Blocks][N / 2], and a warp 16 rows of
// each block. accumulator.cuh documents the places of their elements.
//
// The order of calls, for each stage of operands that has landed:
//
//   wgmma_pin(d[i]) of all blocks, and pin_operand(a) of an a in registers, wgmma_fence()
//   multiply(d, a, b, ...)               one or more times
//   wgmma_commit()
//   wgmma_wait<n>(), and once n is 0 wgmma_pin(d[i]) again, before d is read

#include <kernwright/math/types.cuh>
#include <kernwright/ptx/wgmma.cuh>
#include <kernwright/tile/accumulator.cuh>
#include <kernwright/tile/swizzle.cuh>

namespace kernwright {

// A step is 32 bytes along k, which one instruction multiplies: 8, 16 or 32 elements.
constexpr int kStepBytes = 32;
constexpr int kStepsOfBox = kSwizzleBytes / kStepBytes;

// An operand of `Rows` rows and `Depth` elements of k in shared memory, as boxes in the 128-byte
// swizzle (wgmma.cuh describes them). K-major, a box has all rows and 128 bytes of k, and boxes
// follow each other along k. MN-major, for 16-bit types, a box has 64 rows and all of k, and boxes
// follow each other along the rows.
template <Major M, int Rows, int Depth>
class WgmmaOperand {
 public:
  // Describes the operand at shared address `address`, from its row `first_row` on.
  __device__ __forceinline__ explicit WgmmaOperand(unsigned address, int first_row = 0)
      : first_(wgmma_descriptor<M>(address + distance(first_row, 0), kBoxBytes)) {}

  // Returns this operand from its row `row` on.
  __device__ __forceinline__ WgmmaOperand from(int row) const {
    WgmmaOperand rest = *this;
    rest.first_ += distance(row, 0) / 16;
    return rest;
  }

  // Returns the descriptor of the part that begins at row `row` and step `step`. `row` is a
  // multiple of 8 if K-major, else of 64.
  __device__ __forceinline__ unsigned long long at(int row, int step) const {
    return first_ + distance(row, step) / 16;
  }

 private:
  static constexpr int kBoxBytes = (M == Major::k ? Rows : Depth) * kSwizzleBytes;

  static __device__ __forceinline__ constexpr int distance(int row, int step) {
    if constexpr (M == Major::k) {
      return step / kStepsOfBox * kBoxBytes + row * kSwizzleBytes + step % kStepsOfBox * kStepBytes;
    } else {
      constexpr int kStep = kStepBytes / 2;  // elements
      return row / 64 * kBoxBytes + step * kStep * kSwizzleBytes;
    }
  }

  unsigned long long first_;
};

// Issues `count` steps from step `first` on. Block i of d takes the rows of a from i * `row_step`
// on, and all blocks take the same b. The products are added to d or, unless `add`, replace it.
template <typename T, int Blocks, int Registers, Major MajorA, int RowsA, Major MajorB, int RowsB,
          int Depth>
__device__ __forceinline__ void multiply(float (&d)[Blocks][Registers],
                                         const WgmmaOperand<MajorA, RowsA, Depth>& a, int row_step,
                                         const WgmmaOperand<MajorB, RowsB, Depth>& b, int first,
                                         int count, bool add) {
  constexpr int kParts = Registers > 128 ? 2 : 1;  // an instruction has up to 256 columns
#pragma unroll
  for (int step = first; step < first + count; ++step) {
#pragma unroll
    for (int i = 0; i < Blocks; ++i) {
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        auto& columns =
            reinterpret_cast<float(&)[Registers / kParts]>(d[i][part * Registers / kParts]);
        wgmma_issue<T, 2 * Registers / kParts, MajorA, MajorB>(columns, a.at(i * row_step, step),
                                                               b.at(part * RowsB / kParts, step),
                                                               add || step != first);
      }
    }
  }
}

// Keeps the compiler from moving writes of the operand across this point.
template <int Steps>
__device__ __forceinline__ void pin_operand(RegisterOperand<Steps>& a) {
#pragma unroll
  for (int i = 0; i < 4 * Steps; ++i) asm volatile("" : "+r"(a[i / 4][i % 4])::"memory");
}

// Multiplies with one block of a in registers, which must not change until a wgmma_wait covers the
// product. Step 0 of a is multiplied with step `first` of b.
template <typename T, int Registers, int Steps, Major MajorB, int RowsB, int Depth>
__device__ __forceinline__ void multiply(float (&d)[Registers], const RegisterOperand<Steps>& a,
                                         const WgmmaOperand<MajorB, RowsB, Depth>& b, int first,
                                         bool add) {
#pragma unroll
  for (int step = 0; step < Steps; ++step) {
    wgmma_issue<T, 2 * Registers, MajorB>(d, a[step], b.at(0, first + step), add || step != 0);
  }
}

}  // namespace kernwright
