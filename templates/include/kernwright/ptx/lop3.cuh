#pragma once
// Logic of three words in one instruction, which the compiler does not find if two are constants.

namespace kernwright {

// Returns (x & mask) | bits.
__device__ __forceinline__ unsigned and_or(unsigned x, unsigned mask, unsigned bits) {
  unsigned y;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(y) : "r"(x), "r"(mask), "r"(bits));
  return y;
}

}  // namespace kernwright
