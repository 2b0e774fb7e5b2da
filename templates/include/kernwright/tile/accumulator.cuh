#pragma once
// The places of a thread's elements of a product, for wgmma and for mma.sync of 16 rows and 8
// columns, and conversions of accumulators to an operand of the next product, or to 16 bytes of a
// row.
//
// Register i of a warp's 16 rows holds the element in row accumulator_row() + register_row(i) and
// in column accumulator_column() + register_column(i). The first terms depend on the thread alone,
// the second are known to the compiler. The four lanes of a row are neighbours.

#include <kernwright/math/types.cuh>

namespace kernwright {

__device__ __forceinline__ int accumulator_row() { return threadIdx.x % 32 / 4; }
__device__ __forceinline__ int accumulator_column() { return threadIdx.x % 4 * 2; }
__device__ __forceinline__ constexpr int register_row(int i) { return i / 2 % 2 * 8; }
__device__ __forceinline__ constexpr int register_column(int i) { return i / 4 * 8 + i % 2; }

// Sets all sums to zero.
template <int Registers>
__device__ __forceinline__ void clear(float (&acc)[Registers]) {
#pragma unroll
  for (float& x : acc) x = 0;
}
template <int Blocks, int Registers>
__device__ __forceinline__ void clear(float (&acc)[Blocks][Registers]) {
#pragma unroll
  for (int i = 0; i < Blocks; ++i) clear(acc[i]);
}

// Converts sums of products of T to fp32. Tensor cores leave the bits of int32 if T is int8, so
// that the sums are exact until here, and else fp32. (An array of integers beside the
// results would double the registers.)
template <typename T, int Registers>
__device__ __forceinline__ void convert_sums(float (&acc)[Registers]) {
  if constexpr (kIsInt8<T>) {
#pragma unroll
    for (float& x : acc) x = static_cast<float>(__float_as_int(x));
  }
}

// An operand a in registers, four in each of `Steps` steps of 32 bytes of k. With 16 bits they hold
// the elements at the places of accumulators 8 * step to 8 * step + 7, two in a register.
template <int Steps>
using RegisterOperand = unsigned[Steps][4];

// Rounds sums to an operand of another product: their columns become k.
template <typename T, int Registers>
__device__ __forceinline__ void round_operand(const float (&acc)[Registers],
                                              RegisterOperand<Registers / 8>& a) {
#pragma unroll
  for (int i = 0; i < Registers / 2; ++i) {
    a[i / 4][i % 4] = pack_pair<T>(acc[2 * i], acc[2 * i + 1]);
  }
}

// Rounds to fp8, four in a register. Operands have four neighbours there, and accumulators two and
// two: k 4c to 4c + 3 of each 16 are columns 2c, 2c + 1, 2c + 8 and 2c + 9, where c is lane % 4.
// The other operand must have its k in the same order.
template <int Registers>
__device__ __forceinline__ void round_fp8_operand(const float (&acc)[Registers],
                                                  RegisterOperand<Registers / 16>& a) {
#pragma unroll
  for (int i = 0; i < Registers / 4; ++i) {
    const int first = i / 2 * 8 + i % 2 * 2;
    a[i / 4][i % 4] = pack_quad_e4m3(acc[first], acc[first + 1], acc[first + 4], acc[first + 5]);
  }
}

// Exchanges words among four neighbouring lanes: word j of lane i becomes word i of lane j.
__device__ __forceinline__ void transpose_of_quad(unsigned (&words)[4]) {
  const auto exchange = [](unsigned& first, unsigned& second, int distance) {
    const bool upper = threadIdx.x & distance;
    const unsigned other = __shfl_xor_sync(~0u, upper ? first : second, distance);
    (upper ? first : second) = other;
  };
  exchange(words[0], words[1], 1);
  exchange(words[2], words[3], 1);
  exchange(words[0], words[2], 2);
  exchange(words[1], words[3], 2);
}

}  // namespace kernwright
