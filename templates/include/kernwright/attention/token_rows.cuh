#pragma once
// Copies of keys and values whose pages are no boxes of a tile: row by row, to the places that TMA
// would give them. For the operation attention, whose flags and constant dims it reads.
//
// A row is copied by cp.async, 16 bytes a lane, with the swizzle in the lane's address: a warp
// copies 128 bytes of four rows by one instruction, beside four for the addresses of these rows.
// TMA's boxes and bulk copies take their operands from uniform registers, so lanes issue theirs in
// turn, nine instructions and a branch each, and there would be one for every 128 bytes: a box,
// since a bulk copy does not swizzle.

#include <kernwright/attention/boxes.cuh>
#include <kernwright/attention/sequences.cuh>
#include <kernwright/config.cuh>
#include <kernwright/ptx/cp_async.cuh>
#include <kernwright/tile/swizzle.cuh>

namespace kernwright {

// Keys or values in memory, of heads of `width` elements.
struct HeadRows {
  const config::kv_t* elements;
  int ld, width;
};

// The rows of a tile of `Keys` keys from `key` on, of which each lane of a warp knows some. Keys
// that a sequence does not have are filled with zeros. Pages are looked up when the object is made,
// so that a warp can do so while it waits for room.
template <int Keys>
class TokenRows {
 public:
  __device__ __forceinline__ TokenRows(const Sequences& of, const Sequence& sequence, int key,
                                       int kv_head)
      : kv_head_(kv_head) {
    using namespace config;
    const int lane = threadIdx.x % 32;
    // Boxes of one row. A lane has the row of key lane % 8 * 4 + lane / 8 of each 32.
    const TokenBoxes<1, Keys> boxes(of, sequence, key + lane % 8 * 4 + lane / 8 - lane, kv_head);
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      const int used = boxes.outer(round), rows = layout == layout_bshd ? page : page * kv_heads;
      rows_[round] = used == of.pages ? kNone : used * rows + boxes.token(round);
    }
  }

  // Copies the head of each row to a tile of `Boxes` boxes along the head. Run by a whole warp,
  // whose threads then call mbarrier_arrive_copied().
  template <int Boxes, int RowBytes = kSwizzleBytes>
  __device__ __forceinline__ void copy(unsigned tile, const HeadRows& from) const {
    constexpr int kLanes = RowBytes / 16;  // of a row
    constexpr int kAtOnce = 32 / kLanes;   // rows
    constexpr int kPeriod = 8 / kAtOnce;   // of copies, after which the swizzle is the same
    constexpr int kOfGroup = 16 / sizeof(config::kv_t);
    const int lane = threadIdx.x % 32, group = lane % kLanes;
    const int first = lane / 8 + lane / kLanes % (kAtOnce / 4) * 4;  // key of the lane
    const unsigned pitch =
        static_cast<unsigned>(from.ld) * static_cast<unsigned>(sizeof(config::kv_t));
    const long long head =
        place_of(0, 0, kv_head_, config::page, config::kv_heads, from.ld, from.width);
    const auto* const source =
        reinterpret_cast<const char*>(from.elements + head + group * kOfGroup);
    unsigned to[kPeriod];
#pragma unroll
    for (int n = 0; n < kPeriod; ++n) {
      const int key = n * kAtOnce + first;
      to[n] = tile + key * RowBytes + swizzled_group<RowBytes>(key, group);
    }
#pragma unroll
    for (int i = 0; i < Keys; i += kAtOnce) {
      // Eight lanes hold the rows that they copy, so that for rows of 128 bytes the lane to ask is
      // a constant.
      const int row = __shfl_sync(~0u, rows_[i / 32], (i + first) / 4, 8);
      const char* const of_row = source + 1ull * pitch * static_cast<unsigned>(row);
#pragma unroll
      for (int box = 0; box < Boxes; ++box) {
        const bool exists = row != kNone && (box * kLanes + group) * kOfGroup < from.width;
        cp_async<16>(to[i / kAtOnce % kPeriod] + (i / 8 * 8 + box * Keys) * RowBytes,
                     of_row + box * RowBytes, exists ? 16 : 0);
      }
    }
  }

 private:
  static constexpr int kRounds = (Keys + 31) / 32;
  static constexpr int kNone = -1;

  int kv_head_;
  int rows_[kRounds];  // of the pool, from head 0 of its first token on
};

}  // namespace kernwright
