#pragma once
// Computes a row of attention's result by one warp, from global memory, key by key: only keys that
// the row's query sees are read.
//
// In tiles, keys that a query does not see have a p of zero. Zero times a value that is NaN or
// infinite is NaN, so such a value reaches rows that do not see it. After the last tile a row's
// sums show whether this may have happened (NotFinite), and those rows are computed again here.
// This is slow and rare. The check costs a tile of queries up to a hundredth of its time. For the
// operation attention, whose flags it reads.

#include <kernwright/attention/scores.cuh>
#include <kernwright/attention/sequences.cuh>
#include <kernwright/math/reduce.cuh>
#include <kernwright/math/types.cuh>
#include <kernwright/tile/softmax_tile.cuh>

namespace kernwright {

// Which of the 16 rows of a warp's accumulators have a sum that is not finite.
class NotFinite {
 public:
  // Run by a whole warp.
  template <int Registers>
  __device__ __forceinline__ explicit NotFinite(const float (&acc)[Registers]) {
    float zero[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < Registers; ++i) {
      zero[register_row(i) / 8] = fmaf(acc[i], 0.0f, zero[register_row(i) / 8]);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) lanes_[half] = __ballot_sync(~0u, zero[half] != 0);
  }
  __device__ __forceinline__ bool any() const { return (lanes_[0] | lanes_[1]) != 0; }
  // Returns whether `row` is among the rows. Four lanes share a row.
  __device__ __forceinline__ bool has(int row) const {
    // An array that is indexed by a row would be in local memory.
    return ((row < 8 ? lanes_[0] : lanes_[1]) >> row % 8 * 4 & 15) != 0;
  }

 private:
  unsigned lanes_[2];
};

// Returns the value of one of the warp's 16 rows, from the lanes that have it: a thread has the
// values of two rows.
__device__ __forceinline__ float of_row(const RowFactors& of_two, int row) {
  return __shfl_sync(~0u, row < 8 ? of_two[0] : of_two[1], row % 8 * 4);
}

// Calls visit(row, part) for each of a warp's 16 rows whose sums are not finite though its scores
// are numbers. `part` is the row's part of `softmax`. A row with a score of NaN is NaN. Run by a
// whole warp, and so is visit.
template <int Registers, typename Visit>
__device__ __forceinline__ void each_not_finite(const float (&acc)[Registers],
                                                const SoftmaxTile& softmax, const Visit& visit) {
  const NotFinite not_finite(acc);
  if (!not_finite.any()) return;
  const SoftmaxPart upper = softmax.part(0), lower = softmax.part(1);
#pragma unroll 1
  for (int row = 0; row < 16; ++row) {
    const float largest = of_row({upper.largest, lower.largest}, row);
    const float sum = of_row({upper.sum, lower.sum}, row);
    if (not_finite.has(row) && !isnan(largest)) visit(row, SoftmaxPart{largest, sum});
  }
}

// The tensors that rows are computed from.
struct Operands {
  const config::dtype_t* q;
  const config::kv_t* k;
  const config::kv_t* v;
  int ldq, ldk, ldv;
};

// The values of one row, weighted by p, relative to its largest score, which is passed in base 2.
// Lane l has columns l, l + 32, ...
class SlowPathRow {
 public:
  __device__ __forceinline__ explicit SlowPathRow(float largest)
      : largest_(largest == hidden_score() ? 0.0f : largest) {}

  // Adds the keys of [begin, end) that query `query` of the sequence sees.
  __device__ __forceinline__ void add(const Operands& from, const Sequences& of,
                                      const Sequence& sequence, int query, int head,
                                      const Logits& logits, int begin, int end) {
    using namespace config;
    const int lane = threadIdx.x % 32, kv_head = head / (heads / kv_heads);
    const int position = query + sequence.shift();
    const dtype_t* q = from.q + query_place(sequence, query, head, of.q_tokens, from.ldq, head_dim);
    begin = max(begin, sequence.first_key(query));
    end = min(end, sequence.end_key(query + 1));
    const BiasTensor::Element* bias = nullptr;
    if constexpr (biased) bias = logits.tensor.row(sequence.number, head, query);
#pragma unroll 1
    for (int key = begin; key < end; ++key) {
      if constexpr (kHides) {
        if (to_float(bias[key]) == 0) continue;
      }
      const kv_t* k = from.k + key_place(sequence, key, kv_head, of, from.ldk, head_dim);
      const kv_t* v = from.v + key_place(sequence, key, kv_head, of, from.ldv, head_dim_v);
      float product = 0;
      for (int i = lane; i < head_dim; i += 32) product += to_float(q[i]) * to_float(k[i]);
      product = warp_reduce<Sum, 32>(product);
      float score = logits.score(product, logits.slope(head), position - key);
      if constexpr (kAdds) score += to_float(bias[key]);
      const float p = exp2_fast(score * logits.unit() - largest_);
#pragma unroll
      for (int i = 0; i < kParts; ++i) {
        if (lane + 32 * i < head_dim_v) acc_[i] += p * to_float(v[lane + 32 * i]);
      }
    }
  }

  // Calls store(column, sum) for each column of this lane.
  template <typename Store>
  __device__ __forceinline__ void each(const Store& store) const {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      if (lane + 32 * i < config::head_dim_v) store(lane + 32 * i, acc_[i]);
    }
  }

 private:
  static constexpr int kParts = (config::head_dim_v + 31) / 32;
  float largest_;
  float acc_[kParts] = {};
};

}  // namespace kernwright
