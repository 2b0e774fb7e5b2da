#pragma once
// A work list of attention: the keys of sequences of different lengths, shared out among slots so
// that each has about as many. A slot has one piece of each sequence from its first to its last.
// Only the piece of its first sequence may begin within the sequence, and only the piece of its
// last may end within one. For the operations attention and attention_schedule, whose flags it
// reads.

#include <kernwright/config.cuh>

namespace kernwright {

// Pieces begin and end at multiples of so many keys, which tiles of keys divide.
constexpr int kPieceKeys = 128;

// The work of a slot, as eight integers. A sequence's pieces are in neighbouring slots.
struct alignas(16) ScheduleEntry {
  int first, first_key;          // the first sequence, -1: no work; and the first key of its piece
  int last, last_end;            // the last sequence, and the key behind its piece
  int first_begins, first_ends;  // the slots that have the first and the last piece of `first`
  int last_ends;                 // the slot that has the last piece of `last`
  int unused;
};

// The work that a sequence asks for: its keys from the first that a query sees, which is rounded
// down. The work is counted in units: one for every kPieceKeys keys, and one for the queries and
// the result. A sequence without queries asks for nothing.
struct Demand {
  int begin = 0, end = 0;

  __device__ __forceinline__ Demand(int queries, int keys, int width) {
    if (queries == 0) return;
    end = keys;
    if (config::mask == config::mask_window) {
      begin = max(0, keys - queries - (width - 1)) / kPieceKeys * kPieceKeys;
    }
    units = 1 + (end - begin + kPieceKeys - 1) / kPieceKeys;
  }

  int units = 0;
};

}  // namespace kernwright
