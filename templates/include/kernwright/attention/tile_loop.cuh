#pragma once
// The parts of the loop over tiles that kernels with a QueryTile share. For the operation
// attention, whose flags it reads.

#include <kernwright/attention/boxes.cuh>
#include <kernwright/attention/plain_row.cuh>
#include <kernwright/attention/query_tile.cuh>

namespace kernwright {

// Loads the queries of a tile: a box along the head for each lane that has one. Run by a warp.
template <int Heads>
__device__ __forceinline__ void load_queries(unsigned to, const TensorMap& map, unsigned full,
                                             const QueryTile<Heads>& tile) {
  const int lane = threadIdx.x % 32;
  if (lane >= kBoxesD) return;
  to += lane * BM * kSwizzleBytes;
  const int token = tile.sequence.q_first + tile.row, outer = tile.sequence.q_batch;
  if constexpr (layout == layout_bshd) {
    tma_load(to, map, {lane * kBoxElements, tile.head, token, outer}, full);
  } else {
    tma_load(to, map, {lane * kBoxElements, token, tile.head, outer}, full);
  }
}

// Returns whether one of the queries [first, last] does not see one of the BN keys from `key` on,
// so that their scores need the mask.
__device__ __forceinline__ bool needs_mask(const Sequence& sequence, int first, int last, int key) {
  bool needs_mask = key + BN > sequence.keys;
  if constexpr (mask != mask_none) needs_mask |= key + BN > first + sequence.shift() + 1;
  if constexpr (mask == mask_window) needs_mask |= key <= last + sequence.shift() - window;
  return needs_mask;
}

// Recomputes the warp's rows whose accumulators a masked NaN or infinity may have reached. The
// first row of the warp is `row_in_tile`, and the sums of its rows are multiplied by `inverse`.
template <int Registers, int Heads, typename Out>
__device__ __forceinline__ void store_slow_path_rows(
    const float (&acc)[Registers], const SoftmaxTile& softmax, const RowFactors& inverse,
    const Operands& from, const Sequences& of, int row_in_tile, const QueryTile<Heads>& tile,
    const Logits& logits, Out* __restrict__ o, int ldo) {
  each_not_finite(acc, softmax, [&](int i, const SoftmaxPart& part) {
    const int query = tile.query_of(row_in_tile + i), head = tile.head_of(row_in_tile + i);
    if (query >= tile.sequence.queries) return;
    const float factor = of_row(inverse, i);
    SlowPathRow row(part.largest);
    const Sequence sequence(tile.sequence.number, of);  // with the place of its keys
    row.add(from, of, sequence, query, head, logits, 0, sequence.keys);
    Out* to = o + query_place(tile.sequence, query, head, of.q_tokens, ldo, head_dim_v);
    row.each([&](int column, float x) { to[column] = from_float<Out>(x * factor); });
  });
}

}  // namespace kernwright
