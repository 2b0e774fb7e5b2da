#pragma once
// A bias on its way from memory to the scores of a warpgroup.

#include "layout.cuh"
#include <kernwright/math/vector.cuh>
#include <kernwright/ptx/cp_async.cuh>
#include <kernwright/ptx/ldmatrix.cuh>
#include <kernwright/ptx/mbarrier.cuh>
#include <kernwright/ptx/stmatrix.cuh>
#include <kernwright/tile/softmax_tile.cuh>

namespace {

constexpr int kBiasThreads = 64;  // that load it

// Loads 16 bytes of a row, of which elements from `count` on do not exist.
template <typename Element>
__device__ __forceinline__ void copy_elements(unsigned to, const Element* from, int count,
                                              bool aligned) {
  constexpr int kOfPiece = 16 / sizeof(Element);
  if (aligned) {
    cp_async<16>(to, from, min(max(count, 0), kOfPiece) * static_cast<int>(sizeof(Element)));
    return;
  }
  alignas(16) Element elements[kOfPiece] = {};
#pragma unroll
  for (int i = 0; i < kOfPiece; ++i) {
    if (i < count) elements[i] = from[i];
  }
  store_quad(to, *reinterpret_cast<const float4*>(elements));
}

// Loads the piece of a warpgroup for a tile of keys. Run by kBiasThreads threads.
template <typename Element>
__device__ __forceinline__ void copy_bias(unsigned piece, const BiasTensor& bias, const Tile& tile,
                                          int group, int key, bool aligned) {
  constexpr int kOfStep = 16 / sizeof(Element);         // elements of a thread
  constexpr int kSteps = (BN + kOfStep - 1) / kOfStep;  // of a row
  const Element* const first = bias.row(tile.sequence.number, 0, 0) + key;
#pragma unroll 1
  for (int i = threadIdx.x % kBiasThreads; i < BIAS_ROWS * kSteps; i += kBiasThreads) {
    const int row = group * 64 + i / kSteps, column = i % kSteps * kOfStep;
    const int query = min(tile.query_of(row), tile.sequence.queries - 1);
    const Element* const from =
        first + tile.head_of(row) * bias.head_pitch + query * bias.query_pitch + column;
    const int count = bias.keys - key - column;
    copy_elements(piece + i / kSteps * BIAS_PITCH + i % kSteps * 16, from, count, aligned);
  }
}

// Loads the bias of the tiles that are published, for one warpgroup after the other. Run by
// kBiasThreads threads; take() returns the next tile.
template <typename Element, typename Take>
__device__ __forceinline__ void produce_bias(const BiasTensor& bias, Addresses at,
                                             const Take& take) {
  const bool aligned = bias.is_aligned(16);
  BiasPipeline pieces(at.bias_barriers());
#pragma unroll 1
  for (Tile tile = take(); tile.exists(); tile = take()) {
#pragma unroll 1
    for (int key = (tile.last - 1) * BN; key >= tile.first * BN; key -= BN) {
#pragma unroll 1
      for (int group = 0; group < WGS; ++group) {
        pieces.producer_wait();
        copy_bias<Element>(at.bias(pieces.stage()), bias, tile, group, key, aligned);
        if (aligned) {
          mbarrier_arrive_copied(pieces.full());
        } else {
          mbarrier_arrive(pieces.full());
        }
        pieces.advance();
      }
    }
  }
}

// Applies a piece of the bias to the scores of a warpgroup, and releases it.
class BiasReader {
 public:
  __device__ __forceinline__ BiasReader(Addresses at, int group)
      : at_(at), pieces_(at.bias_barriers()) {
    pieces_.skip(group);
  }

  template <int Registers>
  __device__ __forceinline__ void apply(float (&s)[Registers]) {
    pieces_.consumer_wait();
    const unsigned piece = at_.bias(pieces_.stage());
    if constexpr (kHides) {
      hide(s, piece);
    } else if constexpr (sizeof(bias_dtype_t) == 2) {
      add_pairs<bias_dtype_t>(s, piece);
    } else {
      add(s, piece);
    }
    __syncwarp();
    pieces_.consumer_release(pieces_.stage());
    pieces_.skip(WGS);
  }

 private:
  // Returns the offset of a row of the warp's 16.
  static __device__ __forceinline__ unsigned place_of(int row) {
    return BIAS_ROWS == 1 ? 0 : (warp_in_group() * 16 + row) * BIAS_PITCH;
  }

  template <int Registers>
  __device__ __forceinline__ void hide(float (&s)[Registers], unsigned piece) const {
#pragma unroll
    for (int i = 0; i < Registers; i += 2) {
      const unsigned row = piece + place_of(accumulator_row() + register_row(i));
      const unsigned pair = load_shared<2>(row + accumulator_column() + register_column(i)).word[0];
      apply_pair<BiasTensor::Element>(s[i], s[i + 1], pair);
    }
  }

  template <typename Element, int Registers>
  __device__ __forceinline__ void add_pairs(float (&s)[Registers], unsigned piece) const {
    const int lane = threadIdx.x % 32;
    const unsigned row = piece + place_of(lane % 16) + lane / 16 * 16;
#pragma unroll
    for (int i = 0; i < Registers; i += 8) {
      unsigned words[4];
      ldmatrix_x4(words, row + register_column(i) * 2);
#pragma unroll
      for (int j = 0; j < 4; ++j) apply_pair<Element>(s[i + 2 * j], s[i + 2 * j + 1], words[j]);
    }
  }

  template <int Registers>
  __device__ __forceinline__ void add(float (&s)[Registers], unsigned piece) const {
#pragma unroll
    for (int i = 0; i < Registers; i += 2) {
      const unsigned row = piece + place_of(accumulator_row() + register_row(i));
      const float2 pair =
          load_shared_pair<float>(row + (accumulator_column() + register_column(i)) * 4);
      s[i] += pair.x;
      s[i + 1] += pair.y;
    }
  }

  Addresses at_;
  BiasPipeline pieces_;
};

}  // namespace
