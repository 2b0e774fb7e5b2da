#pragma once
// The tiles of a kernel whose blocks take BM rows and BN keys at a time: the tile and the sequence
// of a number, and the tiles of keys that it sees. Rows are queries of one head, or of some heads
// that share keys.

#include <kernwright/attention/sequences.cuh>
#include <kernwright/config.cuh>

namespace kernwright {

using namespace config;

// A tile of queries, and the tiles of keys that it sees: [first, last).
struct Tile {
  Sequence sequence;
  int head;  // the first
  int row;   // its first query in the sequence
  int first, last;

  __device__ bool exists() const { return head >= 0; }
  __device__ bool sees() const { return last > first; }
  __device__ int kv_head() const { return head / (heads / kv_heads); }
};

// Returns the mark that follows the last tile.
__device__ __forceinline__ Tile no_tile() { return {Sequence(0, 0, 0, 0), -1, 0, 0, 0}; }

// Returns tile `number`. Tiles of `Heads` heads are ordered in sections of `section` heads, or of
// `section` times the heads that share a tile, whose keys and values fit the L2 together: all tiles
// of a section's heads come before the tiles of the next. In a section the tiles that see most come
// first, so that the tiles left for the end are short.
template <int Heads = 1>
__device__ __forceinline__ Tile tile_at(int number, int section, const Sequences& of) {
  constexpr int kQueries = BM / Heads, kUnits = heads / Heads;
  const int rows = (of.q_len + kQueries - 1) / kQueries;
  const int all = kUnits * of.batch;
  const int first_unit = number / (section * rows) * section;
  const int inside = number - first_unit * rows;
  const int width = min(section, all - first_unit);
  const int row = inside / width;
  const int unit = first_unit + inside - row * width;
  const Sequence sequence(unit / kUnits, of);
  const int query = (mask == mask_none ? row : rows - 1 - row) * kQueries;
  Tile tile{sequence, unit % kUnits * Heads, query, 0, 0};
  const int begin = sequence.first_key(query);
  const int end = query < sequence.queries ? sequence.end_key(query + kQueries) : 0;
  tile.first = begin / BN;
  tile.last = max(tile.first, (end + BN - 1) / BN);
  return tile;
}

}  // namespace kernwright
