#pragma once
// Copies rows of 16-bit elements, which may start anywhere, to rows that start at whole lines: the
// form that TMA can address.

#include <kernwright/element_shift.cuh>
#include <kernwright/vector.cuh>

namespace kernwright {

constexpr int kPadThreads = 256;
constexpr int kPadColumns = 1024;  // of a row that a warp copies
constexpr int kPadLoads = kPadColumns / (8 * 32);

// Elements `first` to `first` + 7 of `count`, where 8 divides `first`; those beyond the end are 0.
template <typename T>
__device__ __forceinline__ Packed<16> load_eight(const T* elements, long long first,
                                                 long long count) {
  if (first + 8 <= count) return load<Load::read_only, 16>(elements + first);
  Packed<16> x{};
  for (int i = 0; i < 8 && first + i < count; ++i) {
    x.word[i / 2] |= static_cast<unsigned>(elements[first + i].bits) << i % 2 * 16;
  }
  return x;
}

// The same for any `first`, by two aligned loads and a shift.
template <typename T>
__device__ __forceinline__ Packed<16> load_eight_anywhere(const T* elements, long long first,
                                                          long long count) {
  const int shift = static_cast<int>(first % 8);
  const Packed<16> low = load_eight(elements, first - shift, count);
  if (shift == 0) return low;
  const Packed<16> high = load_eight(elements, first - shift + 8, count);
  unsigned words[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) words[i] = i < 4 ? low.word[i] : high.word[i - 4];
  shift_elements<4>(words, shift);
  return {{words[0], words[1], words[2], words[3]}};
}

// Run by a grid of kPadThreads threads a block and at least a warp for each kPadColumns columns of
// each row: copies a[m, k] and b[n, k] to rows of `pitch` elements, a multiple of 8. What lies
// between k and the pitch is not for use.
template <typename T>
__device__ __forceinline__ void pad_rows(const T* a, const T* b, T* padded_a, T* padded_b, int m,
                                         int n, int k, int pitch) {
  const int parts = (k + kPadColumns - 1) / kPadColumns;
  const long long warp = (static_cast<long long>(blockIdx.x) * kPadThreads + threadIdx.x) / 32;
  long long row = warp / parts;
  const int first = static_cast<int>(warp % parts) * kPadColumns + threadIdx.x % 32 * 8;
  const T* from = a;
  T* to = padded_a;
  long long rows = m;
  if (row >= m) {
    row -= m;
    from = b;
    to = padded_b;
    rows = n;
  }
  if (row >= rows) return;
  Packed<16> x[kPadLoads];
#pragma unroll
  for (int i = 0; i < kPadLoads; ++i) {
    const int column = first + i * 256;
    if (column < k) x[i] = load_eight_anywhere(from, row * k + column, rows * k);
  }
#pragma unroll
  for (int i = 0; i < kPadLoads; ++i) {
    const int column = first + i * 256;
    if (column < k) store<Store::plain>(to + row * pitch + column, x[i]);
  }
}

}  // namespace kernwright
