#pragma once
// Stores the sums of a tile (wgmma_tile.cuh) from a warp that holds 16 of its rows. The sums are
// rounded to Out and written, in chunks of 16 rows by 128 bytes, to slots of shared memory in the
// 128-byte swizzle. From there TMA or the warp stores them. All lanes of the warp call each
// function together, in this order:
//
//   round_chunk(acc, words)            the chunk's elements, 16 words a thread
//   slot = staging.next()              waits until the slot may be overwritten
//   stage_chunk<Out>(words, slot, lane)
//   tma_store_fence(), __syncwarp(), and in one lane tma_store() of a box of 16 rows, swizzle 128
//   or, if the result is transposed, stage_chunk_transposed<Out>(words, slot, lane) and the same
//   with a box of 16 of its columns, swizzle 32
//   or, if TMA cannot address the rows, __syncwarp() and store_rows<Out>(slot, ...)
//
// Rounded chunks may wait in registers between the first two calls. The lane that called
// tma_store() must wait for it before the block ends or reads the result.

#include <kernwright/math/types.cuh>
#include <kernwright/ptx/stmatrix.cuh>
#include <kernwright/ptx/tma.cuh>
#include <kernwright/tile/swizzle.cuh>

namespace kernwright {

constexpr int kChunkRows = 16;
constexpr int kChunkBytes = kChunkRows * kSwizzleBytes;
constexpr int kChunkWords = kChunkBytes / (4 * 32);  // per thread
template <typename Out>
constexpr int kChunkColumns = kSwizzleBytes / sizeof(Out);

// Returns the index of the word that holds accumulator i, an even one, after rounding: two 16-bit
// elements share a word.
template <typename Out>
__device__ __forceinline__ constexpr int word_of(int i) {
  return i * sizeof(Out) / 4;
}

// Rounds two neighbours to words[place] and, if they need two words, words[place + 1].
template <typename Out, int Words>
__device__ __forceinline__ void round_pair(float first, float second, unsigned (&words)[Words],
                                           int place) {
  if constexpr (sizeof(Out) == 2) {
    words[place] = pack_pair<Out>(first, second);
  } else {
    words[place] = __float_as_uint(first);
    words[place + 1] = __float_as_uint(second);
  }
}

// Rounds the chunk whose first accumulator is *first. A chunk that begins at column c of a block
// begins with its accumulator c / 2.
template <typename Out>
__device__ __forceinline__ void round_chunk(const float* first, unsigned (&words)[kChunkWords]) {
#pragma unroll
  for (int i = 0; i < kChunkColumns<Out> / 2; i += 2) {
    round_pair<Out>(first[i], first[i + 1], words, word_of<Out>(i));
  }
}

// Returns the address of fp32 accumulators 2 * pair and 2 * pair + 1 of a chunk that begins at
// `slot`. ldmatrix and stmatrix cannot move them, since they take elements of 16 bits.
__device__ __forceinline__ unsigned swizzled_pair(unsigned slot, int pair) {
  const int lane = threadIdx.x % 32, row = lane / 4;  // rows 8 apart have the same swizzle
  return slot + (row + pair % 2 * 8) * kSwizzleBytes +
         swizzled_group(row, pair / 2 * 2 + lane % 4 / 2) + lane % 2 * 8;
}

// Writes a chunk to its slot; `lane` is threadIdx.x % 32.
template <typename Out>
__device__ __forceinline__ void stage_chunk(const unsigned (&words)[kChunkWords], unsigned slot,
                                            int lane) {
  if constexpr (sizeof(Out) == 2) {
    const int row = lane % kChunkRows, half = lane / kChunkRows;
#pragma unroll
    for (int j = 0; j < kChunkWords / 4; ++j) {
      stmatrix_x4(slot + row * kSwizzleBytes + swizzled_group(row, 2 * j + half), words[4 * j],
                  words[4 * j + 1], words[4 * j + 2], words[4 * j + 3]);
    }
  } else {
#pragma unroll
    for (int j = 0; j < kChunkWords / 2; ++j) {
      store_shared_pair(swizzled_pair(slot, j), words[2 * j], words[2 * j + 1]);
    }
  }
}

// Writes a chunk of 16-bit elements to its slot transposed: a row there is a column of the chunk,
// 32 bytes in their own swizzle.
template <typename Out>
__device__ __forceinline__ void stage_chunk_transposed(const unsigned (&words)[kChunkWords],
                                                       unsigned slot, int lane) {
  static_assert(sizeof(Out) == 2);
  constexpr int kBytes = kChunkRows * sizeof(Out);
#pragma unroll
  for (int j = 0; j < kChunkWords / 4; ++j) {
    const int row = 16 * j + lane / 16 * 8 + lane % 8;
    stmatrix_x4_transposed(slot + row * kBytes + swizzled_group<kBytes>(row, lane / 8 % 2),
                           words[4 * j], words[4 * j + 1], words[4 * j + 2], words[4 * j + 3]);
  }
}

// Stores the first `rows` rows and `columns` columns of a staged chunk without TMA, one row after
// the other. `row_at(row)(column)` is the address of an element.
template <typename Out, typename RowAt>
__device__ __forceinline__ void store_rows(unsigned slot, int rows, int columns,
                                           const RowAt& row_at) {
#pragma unroll 2
  for (int row = 0; row < kChunkRows; ++row) {
    if (row >= rows) break;
    const auto at = row_at(row);
#pragma unroll
    for (int i = threadIdx.x % 32; i < kChunkColumns<Out>; i += 32) {
      const unsigned from = slot + row * kSwizzleBytes + swizzled_byte(row, i * sizeof(Out));
      if (i < columns) *at(i) = load_shared<Out>(from);
    }
  }
}

// The slots of a warp, used in turn: while TMA reads one of two, the warp fills the other.
template <int Slots = 2>
class Staging {
 public:
  static constexpr int kBytes = Slots * kChunkBytes;

  // `slots` is their shared address, a multiple of 1024.
  __device__ __forceinline__ explicit Staging(unsigned slots)
      : slots_(slots), lane_(threadIdx.x % 32) {}

  // Returns the slot for the next chunk. Waits until the store that reads from it has read all.
  __device__ __forceinline__ unsigned next() {
    if (lane_ == 0) tma_store_wait_read<Slots - 1>();
    __syncwarp();
    const unsigned slot = slots_ + place_ * kChunkBytes;
    place_ = (place_ + 1) % Slots;
    return slot;
  }

 private:
  unsigned slots_;
  int lane_, place_ = 0;
};

}  // namespace kernwright
