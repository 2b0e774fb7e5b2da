#pragma once
// The lanes of a vector that belong to a row which begins or ends in it, and the vector that begins
// some lanes ahead of another.

#include <kernwright/rows/row.cuh>

namespace kernwright::rows {

// The lanes of a vector that belong to the row, a bit each.
template <typename T, Sizes Of>
struct Row<T, Of>::Lanes {
  static constexpr unsigned kAll = (1u << kLanes) - 1;
  unsigned bits = kAll;

  __device__ __forceinline__ bool has(int i) const { return (bits >> i & 1) != 0; }
};

// Returns four bytes, each filled with the sign of one of the bytes of x: byte i with the byte that
// the i-th digit of `Bytes` names, which is 8 more than its number.
template <unsigned Bytes>
__device__ __forceinline__ unsigned signs_of(unsigned x) {
  unsigned y;
  asm("prmt.b32 %0, %1, 0, %2;" : "=r"(y) : "r"(x), "n"(Bytes));
  return y;
}

// Returns x with 0 in the lanes that are not the row's. There is no branch, which would wait for x:
// a multiplication takes four bits to the signs of four bytes, whose signs then fill the lanes.
template <typename T, Sizes Of>
__device__ __forceinline__ auto Row<T, Of>::only(Vector x, const Lanes& lanes) -> Vector {
  if constexpr (sizeof(T) == 2) {
    const unsigned lower = (lanes.bits & 15) * 0x10204080u;
    const unsigned upper = (lanes.bits >> 4) * 0x10204080u;
    x.word[0] &= signs_of<0x9988>(lower);
    x.word[1] &= signs_of<0xbbaa>(lower);
    x.word[2] &= signs_of<0x9988>(upper);
    x.word[3] &= signs_of<0xbbaa>(upper);
  } else {
    const unsigned signs = lanes.bits * 0x10204080u;
    x.word[0] &= signs_of<0x8888>(signs);
    x.word[1] &= signs_of<0x9999>(signs);
    x.word[2] &= signs_of<0xaaaa>(signs);
    x.word[3] &= signs_of<0xbbbb>(signs);
  }
  return x;
}

template <typename T, Sizes Of>
__device__ __forceinline__ int Row<T, Of>::whole_words(int skew) {
  return skew % kLanes / (kLanes / kWords);
}

// Returns the vector that begins `skew` lanes, `Words` whole words of them, before `second`, which
// follows `first` in memory. Words that are chosen while a kernel runs would take a selection each.
template <typename T, Sizes Of>
template <int Words>
__device__ __forceinline__ auto Row<T, Of>::lanes_ahead(const Vector& first, const Vector& second,
                                                        int skew) -> Vector {
  const auto word = [&](int i) { return i < kWords ? first.word[i] : second.word[i - kWords]; };
  Vector x;
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    const int last = kWords + i - Words;
    x.word[i] = __funnelshift_l(word(last - 1), word(last), skew % (kLanes / kWords) * 16);
  }
  return x;
}

// Does the same for a skew of which the compiler only knows that it is `Words` words or more.
template <typename T, Sizes Of>
template <int Words>
__device__ __forceinline__ auto Row<T, Of>::any_lanes_ahead(const Vector& first,
                                                            const Vector& second, int skew)
    -> Vector {
  if constexpr (Words + kWordStep < kWords) {
    if (whole_words(skew) > Words) return any_lanes_ahead<Words + kWordStep>(first, second, skew);
  }
  return lanes_ahead<Words>(first, second, skew);
}

}  // namespace kernwright::rows
