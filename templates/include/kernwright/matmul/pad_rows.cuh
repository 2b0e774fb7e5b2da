#pragma once
// matmul_pad, the launch before a matrix product (pad.json): it copies rows that may start at any
// byte to rows that start at multiples of 16 bytes, which TMA can address.

#include <kernwright/config.cuh>
#include <kernwright/math/vector.cuh>
#include <kernwright/matmul/element_shift.cuh>
#include <kernwright/matmul/epilogue.cuh>
#include <kernwright/ptx/programmatic.cuh>

namespace kernwright {

constexpr int kPadThreads = 256;
constexpr int kPadBytes = 2048;  // that a warp copies of a row
constexpr int kPadLoads = kPadBytes / (16 * 32);

// Returns bytes `first` to `first` + 15 of `count`, with zeros beyond the end; `first` is a
// multiple of 16.
__device__ __forceinline__ Packed<16> load_piece(const unsigned char* bytes, long long first,
                                                 long long count) {
  if (first + 16 <= count) return load<Load::read_only, 16>(bytes + first);
  Packed<16> x{};
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    if (first + i < count) {
      x.word[i / 4] |= static_cast<unsigned>(bytes[first + i]) << i % 4 * 8;
    }
  }
  return x;
}

// Does the same for any `first`, by two aligned loads and a shift.
__device__ __forceinline__ Packed<16> load_piece_anywhere(const unsigned char* bytes,
                                                          long long first, long long count) {
  const int shift = static_cast<int>(first % 16);
  const Packed<16> low = load_piece(bytes, first - shift, count);
  if (shift == 0) return low;
  const Packed<16> high = load_piece(bytes, first - shift + 16, count);
  unsigned words[9] = {};
#pragma unroll
  for (int i = 0; i < 8; ++i) words[i] = i < 4 ? low.word[i] : high.word[i - 4];
  shift_elements<5>(words, shift / 2);
  Packed<16> x;
#pragma unroll
  for (int i = 0; i < 4; ++i) x.word[i] = __funnelshift_r(words[i], words[i + 1], shift % 2 * 8);
  return x;
}

// Copies m rows of a and n rows of b, of k elements each, to rows of `pitch` elements, a multiple
// of 16 bytes. The rows of a and b begin `lda` and `ldb` elements apart. The elements between k and
// the pitch must not be used. Run by a grid of kPadThreads threads a block, with at least one warp
// for each kPadBytes of each row.
template <typename T>
__device__ __forceinline__ void pad_rows(const T* a, const T* b, T* padded_a, T* padded_b, int m,
                                         int n, int k, int pitch, int lda, int ldb) {
  const long long row_bytes = static_cast<long long>(k) * sizeof(T);
  const long long parts = (row_bytes + kPadBytes - 1) / kPadBytes;
  const long long warp = (static_cast<long long>(blockIdx.x) * kPadThreads + threadIdx.x) / 32;
  long long row = warp / parts;
  const long long first = warp % parts * kPadBytes + threadIdx.x % 32 * 16;
  auto from = reinterpret_cast<const unsigned char*>(a);
  auto to = reinterpret_cast<unsigned char*>(padded_a);
  long long rows = m, apart = lda;
  if (row >= m) {
    row -= m;
    apart = ldb;
    from = reinterpret_cast<const unsigned char*>(b);
    to = reinterpret_cast<unsigned char*>(padded_b);
    rows = n;
  }
  if (row >= rows) return;
  apart *= sizeof(T);
  const long long end = (rows - 1) * apart + row_bytes;
  Packed<16> x[kPadLoads];
#pragma unroll
  for (int i = 0; i < kPadLoads; ++i) {
    const long long at = first + i * 512;
    if (at < row_bytes) x[i] = load_piece_anywhere(from, row * apart + at, end);
  }
#pragma unroll
  for (int i = 0; i < kPadLoads; ++i) {
    const long long at = first + i * 512;
    if (at < row_bytes) {
      store<Store::plain>(to + row * (static_cast<long long>(pitch) * sizeof(T)) + at, x[i]);
    }
  }
}

// Copies the operands that need it.
extern "C" __global__ void __launch_bounds__(kPadThreads) matmul_pad(KW_PARAMETERS(matmul_pad)) {
  release_next_kernel();
  await_previous_kernel();
  if constexpr (config::COPIED) {  // compiling this takes as long as a small product
    if (reads_operands(alpha)) {
      pad_rows(a, b, padded_a, padded_b, COPIED_A, COPIED_B, k, PITCH, lda, ldb);
    }
  }
}

}  // namespace kernwright
