#pragma once
// The rows of a template whose manifest extends row.json, by the names that it has there.

#include <kernwright/config.cuh>
#include <kernwright/ptx/programmatic.cuh>
#include <kernwright/rows/feed.cuh>
#include <kernwright/rows/weights.cuh>

namespace kernwright::row {

using namespace kernwright::config;
using rows::kRead;

using Row = rows::Row<dtype_t, rows::Sizes{.columns = columns,
                                           .row_threads = THREADS_PER_ROW,
                                           .block_rows = ROWS_PER_BLOCK,
                                           .cluster = CLUSTER,
                                           .stages = STAGES,
                                           .streams = STREAMS,
                                           .kept = KEPT}>;
static_assert(Row::kVectorBytes == VECTOR_BYTES && Row::kAlignBytes == ALIGN);
static_assert(Row::kRowVectors == ROW_VECTORS && Row::kSliceVectors == SLICE_VECTORS);
static_assert(Row::kSteps == STEPS && Row::kParts == PARTS);

using Vector = Row::Vector;
using Lanes = Row::Lanes;
using Share = Row::Share;
// Feeds ROWS_AT_ONCE rows at once, beside HELD vectors of weights.
using Feed = Row::Feed<ROWS_AT_ONCE, HELD>;
static_assert(Feed::kSharedBytes == SHARED_BYTES);
template <bool Given, int Place>
using Weights = Row::Weights<Feed, Given, Place, WEIGHT_EARLY != 0>;
constexpr int kLanes = Row::kLanes;

// Returns a + b, rounded: if a sum is written, the kernel works on the rounded sum too.
__device__ __forceinline__ Vector add(const Vector& a, const Vector& b) {
  Vector sum;
#pragma unroll
  for (int i = 0; i < Row::kWords; ++i) {
    sum.word[i] = add_words<dtype_t>(a.word[i], b.word[i]);
  }
  return sum;
}

}  // namespace kernwright::row
