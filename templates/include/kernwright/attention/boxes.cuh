#pragma once
// How TMA lays heads of q, k and v into shared memory: as boxes of 128 bytes along the head, or of
// 64 if a head of fp8 has no more, in the swizzle of such rows. For the operation attention, whose
// flags and constant dims it reads.

#include <kernwright/attention/sequences.cuh>
#include <kernwright/config.cuh>
#include <kernwright/ptx/tma.cuh>
#include <kernwright/tile/swizzle.cuh>

namespace kernwright {

constexpr int kBoxElements = kSwizzleBytes / sizeof(config::kv_t);  // of a row of 128 bytes

// Returns the bytes of a row of a box.
__device__ constexpr int box_row_bytes(int width) {
  return sizeof(config::kv_t) == 1 && width <= 64 ? 64 : kSwizzleBytes;
}
constexpr int kRowD = box_row_bytes(config::head_dim);
constexpr int kRowDv = box_row_bytes(config::head_dim_v);
constexpr int kBoxesD = (config::head_dim * sizeof(config::kv_t) + kRowD - 1) / kRowD;
constexpr int kBoxesDv = (config::head_dim_v * sizeof(config::kv_t) + kRowDv - 1) / kRowDv;
constexpr int kStepsD = (config::head_dim + 15) / 16;
// Columns of o in the accumulators; columns behind head_dim_v meet zeros of v.
constexpr int kColumns = (config::head_dim_v + 15) / 16 * 16;

// A tile of `Keys` keys in shared memory.
template <int Keys>
struct TileOfKeys {
  static constexpr bool kPaged = config::cache == config::cache_paged;
  // Keys of a box, in a paged cache not more than a page.
  static constexpr int kBoxKeys = config::BOX_KEYS;
  // True if pages are no boxes, and keys are copied one by one.
  static constexpr bool kGathered = kBoxKeys == 1;
  static constexpr int kPieces = Keys / kBoxKeys;  // boxes, beside the boxes along the head
  static constexpr int kKeyBytes = kBoxesD * Keys * kRowD;
  static constexpr int kValueBytes = kBoxesDv * Keys * kRowDv;

  static_assert(kGathered || (Keys % kBoxKeys == 0 && kBoxKeys % 8 == 0));
  static_assert(!kPaged || config::page % kBoxKeys == 0);
};

// The boxes of a tile of `Keys` keys from `key` on, `Boxes` of them along the head: each lane of a
// warp has some. A box of the head is `Keys` rows behind the one before it. Tokens behind the end
// of the tensor, and pages that a sequence does not have, load as zeros. Pages are looked up when
// the object is made, so that a warp can do so while it waits for room.
template <int Boxes, int Keys, int RowBytes = kSwizzleBytes>
class TokenBoxes {
 public:
  __device__ __forceinline__ TokenBoxes(const Sequences& of, const Sequence& sequence, int key,
                                        int kv_head)
      : kv_head_(kv_head) {
    using namespace config;
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      int token = sequence.kv_first + key + piece(round) * Tile::kBoxKeys;
      int outer = sequence.kv_batch;
      if constexpr (cache == cache_paged) {
        const int* const used = of.pages_of(sequence.number);
        outer = token < sequence.keys ? used[token / page] : of.pages;
        // With append tiles are loaded ahead, and an entry behind the last page may have any value.
        if constexpr (append != append_none) {
          outer = static_cast<int>(
              ::min(static_cast<unsigned>(outer), static_cast<unsigned>(of.pages)));
        }
        token %= page;
      }
      token_[round] = token;
      outer_[round] = outer;
    }
  }

  __device__ __forceinline__ void load(unsigned destination, const TensorMap& map,
                                       unsigned full) const {
    using namespace config;
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      if (index(round) >= kBoxes) continue;
      const int box = index(round) % Boxes, element = box * kElements;
      const unsigned to = destination + (box * Keys + piece(round) * Tile::kBoxKeys) * RowBytes;
      if constexpr (layout == layout_bshd) {
        tma_load(to, map, {element, kv_head_, token_[round], outer_[round]}, full);
      } else {
        tma_load(to, map, {element, token_[round], kv_head_, outer_[round]}, full);
      }
    }
  }

  // Return the token of the lane's box of a round, and its place along the outermost dim.
  __device__ __forceinline__ int token(int round) const { return token_[round]; }
  __device__ __forceinline__ int outer(int round) const { return outer_[round]; }

 private:
  using Tile = TileOfKeys<Keys>;
  static constexpr int kElements = RowBytes / sizeof(config::kv_t);
  static constexpr int kBoxes = Boxes * Tile::kPieces;
  static constexpr int kRounds = (kBoxes + 31) / 32;

  static __device__ __forceinline__ int index(int round) {
    return static_cast<int>(threadIdx.x % 32) + 32 * round;
  }
  static __device__ __forceinline__ int piece(int round) { return index(round) / Boxes; }

  int kv_head_;
  int token_[kRounds], outer_[kRounds];
};

// Loads such a tile by one call, when there is room already.
template <int Boxes, int Keys, int RowBytes = kSwizzleBytes>
__device__ __forceinline__ void load_tokens(unsigned destination, const TensorMap& map,
                                            unsigned full, const Sequences& of,
                                            const Sequence& sequence, int key, int kv_head) {
  TokenBoxes<Boxes, Keys, RowBytes>(of, sequence, key, kv_head).load(destination, map, full);
}

}  // namespace kernwright
