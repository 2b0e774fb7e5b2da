#pragma once
// Products of whole tiles on wgmma (sm_90a): d += a * b^T in fp32, d in registers, b in shared
// memory, a in shared memory or, for 16-bit types, in registers.
//
// A warpgroup holds `Blocks` blocks of 64 rows as float d[Blocks][N / 2]. Register i of a block
// holds an element in row accumulator_row() + register_row(i) of the 16 rows that the warp has of
// that block, and in column accumulator_column() + register_column(i): the first of each depends on
// the thread alone, the second is known to the compiler. The four lanes of a row are neighbours.
//
// The order of calls, for each stage of operands that has landed:
//
//   wgmma_pin(d[i]) of all blocks, and pin_operand(a) of an a in registers, wgmma_fence()
//   multiply(d, a, b, ...)               one or more times
//   wgmma_commit()
//   wgmma_wait<n>(), and once n is 0 wgmma_pin(d[i]) again, before d is read

#include <kernwright/math/types.cuh>
#include <kernwright/ptx/wgmma.cuh>
#include <kernwright/tile/swizzle.cuh>

namespace kernwright {

// A step of k is 32 bytes of it: 8, 16 or 32 elements, the k of one instruction.
constexpr int kStepBytes = 32;
constexpr int kStepsOfBox = kSwizzleBytes / kStepBytes;

// An operand of `Rows` rows and `Depth` elements of k as boxes in the 128-byte swizzle (wgmma.cuh
// says how these look). K-major, a box has all rows and 128 bytes of k, and boxes follow each other
// along k. MN-major, for 16-bit types, a box has 64 rows and all of k, and boxes follow each other
// along the rows.
template <Major M, int Rows, int Depth>
class WgmmaOperand {
 public:
  // From row `first_row` of the operand at shared `address` on.
  __device__ __forceinline__ explicit WgmmaOperand(unsigned address, int first_row = 0)
      : first_(wgmma_descriptor<M>(address + distance(first_row, 0), kBoxBytes)) {}

  // The operand from row `row` of this one on.
  __device__ __forceinline__ WgmmaOperand from(int row) const {
    WgmmaOperand rest = *this;
    rest.first_ += distance(row, 0) / 16;
    return rest;
  }

  // Describes what begins `row` rows and `step` steps on. K-major, `row` is a multiple of 8, else
  // of 64.
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

__device__ __forceinline__ int accumulator_row() { return threadIdx.x % 32 / 4; }
__device__ __forceinline__ int accumulator_column() { return threadIdx.x % 4 * 2; }
__device__ __forceinline__ constexpr int register_row(int i) { return i / 2 % 2 * 8; }
__device__ __forceinline__ constexpr int register_column(int i) { return i / 4 * 8 + i % 2; }

// Issues `count` steps from `first` on of products of T. Block i takes the rows of a that begin
// i * `row_step` on, and all blocks the same b. The first step's are added to d or, unless `add`,
// put in its place.
template <typename T, int Blocks, int Registers, Major MajorA, int RowsA, Major MajorB, int RowsB,
          int Depth>
__device__ __forceinline__ void multiply(float (&d)[Blocks][Registers],
                                         const WgmmaOperand<MajorA, RowsA, Depth>& a, int row_step,
                                         const WgmmaOperand<MajorB, RowsB, Depth>& b, int first,
                                         int count, bool add) {
#pragma unroll
  for (int step = first; step < first + count; ++step) {
#pragma unroll
    for (int i = 0; i < Blocks; ++i) {
      wgmma_issue<T, 2 * Registers, MajorA, MajorB>(d[i], a.at(i * row_step, step), b.at(0, step),
                                                    add || step != first);
    }
  }
}

// An operand a of 64 rows and 16 * `Steps` elements of k in registers: four a step, in the places
// of accumulators 8 * step and the 7 behind it, two a register.
template <int Steps>
using RegisterOperand = unsigned[Steps][4];

// Rounds the sums of a block, to be multiplied in their turn: its columns become k.
template <typename T, int Registers>
__device__ __forceinline__ void round_operand(const float (&sums)[Registers],
                                              RegisterOperand<Registers / 8>& a) {
#pragma unroll
  for (int i = 0; i < Registers / 2; ++i) {
    a[i / 4][i % 4] = pack_pair<T>(sums[2 * i], sums[2 * i + 1]);
  }
}

// Keeps the compiler from moving what makes or changes the operand across this point.
template <int Steps>
__device__ __forceinline__ void pin_operand(RegisterOperand<Steps>& a) {
#pragma unroll
  for (int i = 0; i < 4 * Steps; ++i) asm volatile("" : "+r"(a[i / 4][i % 4])::"memory");
}

// The same product with a block of a in registers, which must stay as they are until a wgmma_wait
// covers it. Its step 0 meets step `first` of b.
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
