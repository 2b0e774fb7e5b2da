#pragma once
// Words of eight packed codes of mxfp4. In each half, codes 0 and 1 have their signs and sizes, the
// three bits below a sign, as far apart as a bf16 has its sign and the last bits of its exponent.
// So the kernels take two codes by one mask, and the signs and sizes of the other two by two:
//
//   bit   15  14  13  12  11 10 9  8 7 6  5 4 3  2 1 0
//   code  0   2   3   1   3        0      1      2

namespace kernwright {

// Returns a word of eight codes, four nibbles in each half, as it is packed.
__device__ __forceinline__ unsigned packed_mxfp4(unsigned nibbles) {
  return (nibbles & 0x00070007) << 6 | (nibbles & 0x00080008) << 12 | (nibbles & 0x00700070) >> 1 |
         (nibbles & 0x00800080) << 5 | (nibbles & 0x07000700) >> 8 | (nibbles & 0x08000800) << 3 |
         (nibbles & 0x70007000) >> 3 | (nibbles & 0x80008000) >> 2;
}

// Undoes packed_mxfp4().
__device__ __forceinline__ unsigned unpacked_mxfp4(unsigned word) {
  return (word >> 6 & 0x00070007) | (word >> 12 & 0x00080008) | (word << 1 & 0x00700070) |
         (word >> 5 & 0x00800080) | (word << 8 & 0x07000700) | (word >> 3 & 0x08000800) |
         (word << 3 & 0x70007000) | (word << 2 & 0x80008000);
}

}  // namespace kernwright
