#pragma once
// The tiles of a kernel whose blocks take BM rows and BN keys at a time: the tile and the sequence
// of a number, and the tiles of keys that it sees.

#include <kernwright/attention/sequences.cuh>
#include <kernwright/config.cuh>

namespace kernwright {

using namespace config;

// A tile of queries of `Heads` heads that share keys, and the tiles of keys that it sees: [first,
// last). Its rows are the heads of each query or, if heads are apart in memory, the queries of each
// head.
template <int Heads>
struct QueryTile {
  static constexpr int kQueries = BM / Heads;  // of each head
  static constexpr bool kHeadsInside = Heads == 1 || layout == layout_bshd;
  static_assert(BM % Heads == 0);

  Sequence sequence;
  int head;  // the first
  int row;   // its first query in the sequence
  int first, last;

  // Returns the mark that follows the last tile.
  static __device__ __forceinline__ QueryTile none() { return {Sequence(0, 0, 0, 0), -1, 0, 0, 0}; }
  __device__ bool exists() const { return head >= 0; }
  __device__ bool sees() const { return last > first; }
  __device__ int kv_head() const { return head / (heads / kv_heads); }
  __device__ int query_of(int row_of_tile) const {
    return row + (kHeadsInside ? row_of_tile / Heads : row_of_tile % kQueries);
  }
  __device__ int head_of(int row_of_tile) const {
    return head + (kHeadsInside ? row_of_tile % Heads : row_of_tile / kQueries);
  }
};

// Returns tile `number`. Tiles of `Heads` heads are ordered in sections of `section` heads, or of
// `section` times the heads that share a tile, whose keys and values fit the L2 together: all tiles
// of a section's heads come before the tiles of the next. In a section the tiles that see most come
// first, so that the tiles left for the end are short.
template <int Heads>
__device__ __forceinline__ QueryTile<Heads> tile_at(int number, int section, const Sequences& of) {
  constexpr int kQueries = QueryTile<Heads>::kQueries, kUnits = heads / Heads;
  const int rows = (of.q_len + kQueries - 1) / kQueries;
  const int all = kUnits * of.batch;
  const int first_unit = number / (section * rows) * section;
  const int inside = number - first_unit * rows;
  const int width = min(section, all - first_unit);
  const int row = inside / width;
  const int unit = first_unit + inside - row * width;
  const Sequence sequence(unit / kUnits, of);
  const int query = (mask == mask_none ? row : rows - 1 - row) * kQueries;
  QueryTile<Heads> tile{sequence, unit % kUnits * Heads, query, 0, 0};
  const int begin = sequence.first_key(query);
  const int end = query < sequence.queries ? sequence.end_key(query + kQueries) : 0;
  tile.first = begin / BN;
  tile.last = max(tile.first, (end + BN - 1) / BN);
  return tile;
}

}  // namespace kernwright
