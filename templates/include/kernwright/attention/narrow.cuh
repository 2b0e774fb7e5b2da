#pragma once
// fp8 keys and values as operands b of mma.sync, which have 16 bits. For the operation attention,
// whose dtypes it reads.
//
// ldmatrix moves units of two bytes, which are two fp8. So a lane gets four neighbours of a key
// instead of two of 16 bits, and of transposed values two neighbours of each of two keys. The
// elements that are side by side decide which element is which k or column of a product:
//
//   keys     the lane with elements 2c, 2c + 1, 2c + 8 and 2c + 9 of each 16 has 4c to 4c + 3
//            instead. The queries must have the same order (fp8_element).
//   values   of 16 columns the first product has the even ones and the second the odd ones. So a
//            lane's sums belong to columns 4c to 4c + 3 (fp8_columns).
//
// c is lane % 4. All conversions are exact.

#include <kernwright/config.cuh>
#include <kernwright/math/types.cuh>

namespace kernwright {

constexpr bool kFp8 = sizeof(config::kv_t) == 1;

template <bool Fp8, typename T>
struct Wide {
  using Type = T;
};
template <typename T>
struct Wide<true, T> {
  using Type = fp16;
};
// The types in which queries meet keys, and p meet values. p of at most 1 are more exact in fp16
// than in bf16.
using product_t = Wide<sizeof(config::dtype_t) == 1, config::dtype_t>::Type;
using p_t = Wide<kFp8, config::dtype_t>::Type;

// Widens four fp8 to two pairs of T.
template <typename T>
__device__ __forceinline__ void widen(unsigned word, unsigned& low, unsigned& high);
template <>
__device__ __forceinline__ void widen<fp16>(unsigned word, unsigned& low, unsigned& high) {
  widen_e4m3(word, low, high);
}
template <>
__device__ __forceinline__ void widen<bf16>(unsigned word, unsigned& low, unsigned& high) {
  widen_e4m3(word, low, high);
  const float2 first = unpack_pair<fp16>(low), second = unpack_pair<fp16>(high);
  low = pack_pair<bf16>(first.x, first.y);
  high = pack_pair<bf16>(second.x, second.y);
}

// Loads two neighbouring queries of 16 or 8 bits from memory, as T.
template <typename T>
__device__ __forceinline__ unsigned load_pair(const config::dtype_t* from) {
  if constexpr (sizeof(config::dtype_t) == 2) {
    return *reinterpret_cast<const unsigned*>(from);
  } else {
    unsigned low, high;
    widen<T>(*reinterpret_cast<const unsigned short*>(from), low, high);
    return low;
  }
}

// Returns the first of the two elements that are k 2c and 2c + 1, or with `part` 1 k 2c + 8 and 2c
// + 9, of 16 of a query.
__device__ __forceinline__ int fp8_element(int c, int part) { return 4 * c + 2 * part; }

// Makes b of two products of 16 elements, from the elements of 8 keys and of 8 more.
template <typename T>
__device__ __forceinline__ void widen_keys(unsigned (&b)[4], unsigned first, unsigned second) {
  widen<T>(first, b[0], b[1]);
  widen<T>(second, b[2], b[3]);
}

// Makes b of two products with 16 columns, from 8 keys and 8 more. Bytes of a word are columns 0
// and 1 of one key and of the next.
__device__ __forceinline__ void widen_values(unsigned (&b)[4], unsigned first, unsigned second) {
  widen<p_t>(__byte_perm(first, 0, 0x3120), b[0], b[2]);
  widen<p_t>(__byte_perm(second, 0, 0x3120), b[1], b[3]);
}

// Returns in `quad` the four neighbouring sums of row 0, or with `half` 1 of row 8, that a lane has
// of the 16 columns from `column` on: columns column + 4c to column + 4c + 3.
template <int Registers>
__device__ __forceinline__ void fp8_columns(float (&quad)[4], const float (&acc)[Registers],
                                            int column, int half) {
#pragma unroll
  for (int i = 0; i < 4; ++i) quad[i] = acc[column / 2 + i % 2 * 4 + half * 2 + i / 2];
}

}  // namespace kernwright
