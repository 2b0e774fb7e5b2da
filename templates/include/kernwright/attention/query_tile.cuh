#pragma once
// The tiles of a kernel whose blocks take BM queries of a head at a time and BN keys: which tile of
// which sequence a number is, and which tiles of keys it sees.

#include <kernwright/attention/sequences.cuh>
#include <kernwright/config.cuh>

namespace kernwright {

using namespace config;

// A tile of queries of one head, and the tiles of keys that it sees: [first, last).
struct Tile {
  Sequence sequence;
  int head;
  int row;  // its first query in the sequence
  int first, last;

  __device__ bool exists() const { return head >= 0; }
  __device__ bool sees() const { return last > first; }
  __device__ int kv_head() const { return head / (heads / kv_heads); }
};

// What follows the last tile.
__device__ __forceinline__ Tile no_tile() { return {Sequence(0, 0, 0, 0), -1, 0, 0, 0}; }

// Tiles lie in sections of `section` heads, whose keys and values fit the L2 together: all tiles of
// a section's heads come before those of the next. In a section the tiles that see most come first,
// so that what is left for the end is short.
__device__ __forceinline__ Tile tile_at(int number, int section, const Sequences& of) {
  const int rows = (of.q_len + BM - 1) / BM;
  const int all = heads * of.batch;
  const int first_head = number / (section * rows) * section;
  const int inside = number - first_head * rows;
  const int width = min(section, all - first_head);
  const int row = inside / width;
  const int head = first_head + inside - row * width;
  const Sequence sequence(head / heads, of);
  Tile tile{sequence, head % heads, (mask == mask_none ? row : rows - 1 - row) * BM, 0, 0};
  const int begin = sequence.first_key(tile.row);
  const int end = tile.row < sequence.queries ? sequence.end_key(tile.row + BM) : 0;
  tile.first = begin / BN;
  tile.last = max(tile.first, (end + BN - 1) / BN);
  return tile;
}

}  // namespace kernwright
