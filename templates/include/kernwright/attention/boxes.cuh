#pragma once
// How TMA lays heads of q, k and v into shared memory: as boxes of 128 bytes along the head, or of
// 64 where a head of fp8 has no more, in the swizzle of such rows. For the operation attention,
// whose flags and constant dims it reads.

#include <kernwright/attention/sequences.cuh>
#include <kernwright/config.cuh>
#include <kernwright/ptx/tma.cuh>
#include <kernwright/tile/swizzle.cuh>

namespace kernwright {

constexpr int kBoxElements = kSwizzleBytes / sizeof(config::kv_t);  // of a row of 128 bytes

// Bytes of a row of a box.
__device__ constexpr int box_row_bytes(int width) {
  return sizeof(config::kv_t) == 1 && width <= 64 ? 64 : kSwizzleBytes;
}
constexpr int kRowD = box_row_bytes(config::head_dim);
constexpr int kRowDv = box_row_bytes(config::head_dim_v);
constexpr int kBoxesD = (config::head_dim * sizeof(config::kv_t) + kRowD - 1) / kRowD;
constexpr int kBoxesDv = (config::head_dim_v * sizeof(config::kv_t) + kRowDv - 1) / kRowDv;
constexpr int kStepsD = (config::head_dim + 15) / 16;
// Columns of o in the accumulators; those behind head_dim_v meet zeros of v.
constexpr int kColumns = (config::head_dim_v + 15) / 16 * 16;

// A tile of `Keys` keys in shared memory.
template <int Keys>
struct TileOfKeys {
  static constexpr bool kPaged = config::cache == config::cache_paged;
  // Keys of a box: of a paged cache not more than a page.
  static constexpr int kBoxKeys = kPaged && config::page < Keys ? config::page : Keys;
  static constexpr int kPieces = Keys / kBoxKeys;  // boxes, beside those along the head
  static constexpr int kKeyBytes = kBoxesD * Keys * kRowD;
  static constexpr int kValueBytes = kBoxesDv * Keys * kRowDv;

  static_assert(Keys % kBoxKeys == 0 && kBoxKeys % 8 == 0);
  static_assert(!kPaged || config::page % kBoxKeys == 0);
};

// Loads `Boxes` boxes along the head of `Keys` tokens from `key` on, each lane of the warp some of
// them. A box of the head lies `Keys` rows behind the one before it. Tokens behind those of the
// tensor, and pages that a sequence does not have, load as zeros.
template <int Boxes, int Keys, int RowBytes = kSwizzleBytes>
__device__ __forceinline__ void load_tokens(unsigned destination, const TensorMap& map,
                                            unsigned full, const Sequences& of,
                                            const Sequence& sequence, int key, int kv_head) {
  using namespace config;
  using Tile = TileOfKeys<Keys>;
  constexpr int kElements = RowBytes / sizeof(kv_t);
  for (int i = threadIdx.x % 32; i < Boxes * Tile::kPieces; i += 32) {
    const int box = i % Boxes, piece = i / Boxes;
    int token = sequence.kv_first + key + piece * Tile::kBoxKeys;
    int outer = sequence.kv_batch;
    if constexpr (cache == cache_paged) {
      const long long line = static_cast<long long>(sequence.number) * of.table_columns;
      outer = token < sequence.keys ? of.page_table[line + token / page] : of.pages;
      token %= page;
    }
    const unsigned to = destination + (box * Keys + piece * Tile::kBoxKeys) * RowBytes;
    if constexpr (layout == layout_bshd) {
      tma_load(to, map, {box * kElements, kv_head, token, outer}, full);
    } else {
      tma_load(to, map, {box * kElements, token, kv_head, outer}, full);
    }
  }
}

}  // namespace kernwright
