#pragma once
// The softmax of rows whose scores come tile by tile, as the accumulators of a warp's products
// (accumulator.cuh): 16 rows, of which a thread has parts of two, and four lanes share a row.
//
// Every row keeps the largest score so far and the sum of all p so far, relative to it. A tile's
// scores become p = e^(score - largest), its probabilities once they are divided by their sum; when
// the largest grows, the sums so far are multiplied by a factor. At the end a row's results are
// divided by its sum.
//
//   for each tile:   its scores; hidden_score() instead of those that the mask hides
//                    exponentiate(scores, factor) rescale(acc, factor), before the tile's p are
//                    multiplied and added
//   at the end:      finish(...), then all sums times the inverse that it returns
//
// Scores are counted in units whose product with `unit`, which is positive, has base 2: the
// multiplication by 1 / ln 2 and by the scale of the scores is one with the subtraction.

#include <kernwright/math/exp.cuh>
#include <kernwright/math/types.cuh>
#include <kernwright/tile/accumulator.cuh>

namespace kernwright {

// Returns the score of masked keys.
__device__ __forceinline__ float hidden_score() { return __int_as_float(0xff800000); }

// Reduce over the four lanes that share a row.
__device__ __forceinline__ float row_max(float x) {
  x = larger(x, __shfl_xor_sync(~0u, x, 1));
  return larger(x, __shfl_xor_sync(~0u, x, 2));
}
__device__ __forceinline__ float row_sum(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}

// Factors for the sums of a thread's two rows.
using RowFactors = float[2];

template <int Registers>
__device__ __forceinline__ void rescale(float (&acc)[Registers], const RowFactors& factor) {
#pragma unroll
  for (int i = 0; i < Registers; ++i) acc[i] *= factor[register_row(i) / 8];
}

// The state of a row's softmax, or of a part of its scores: the largest score in base 2, and the
// sum of all p relative to it.
struct SoftmaxPart {
  float largest, sum;
};

class SoftmaxTile {
 public:
  // p are multiplied by 2^shift, so that an operand of few bits holds small ones too.
  __device__ __forceinline__ explicit SoftmaxTile(float unit = 1, float shift = 0)
      : unit_(unit), shift_(shift) {}

  // Turns the scores of the next tile into p. `factor` is for the sums so far. It is 1 as long as
  // no p would be above 2^Slack. If all scores of a row may be so low that they are minus infinity
  // in base 2, `Low` takes them for masked.
  template <int Slack = 0, bool Low = false, int Registers>
  __device__ __forceinline__ void exponentiate(float (&scores)[Registers], RowFactors& factor) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      factor[half] = raise<Slack, Low>(scores, half);
      weigh(scores, half);
    }
  }

  // Do the same in two steps, between which other work may begin: `factor`, and then p.
  template <int Registers>
  __device__ __forceinline__ void raise(const float (&scores)[Registers], RowFactors& factor) {
#pragma unroll
    for (int half = 0; half < 2; ++half) factor[half] = raise<0, false>(scores, half);
  }
  template <int Registers>
  __device__ __forceinline__ void weigh(float (&scores)[Registers]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) weigh(scores, half);
  }

  // Returns the state of a row, to be merged with others.
  __device__ __forceinline__ SoftmaxPart part(int half) const {
    return {origin(half), row_sum(sum_[half])};
  }

  // Returns the factor that makes a row's sums its result: 0 for a row that saw nothing. `log2_sum`
  // is the base-2 logarithm of the sum of all e^score, minus infinity for such a row.
  __device__ __forceinline__ void finish(RowFactors& inverse, RowFactors& log2_sum) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = row_sum(sum_[half]);
      inverse[half] = sum == 0 ? 0.0f : 1 / sum;
      log2_sum[half] = sum == 0 ? hidden_score() : origin(half) + __log2f(sum);
    }
  }

  // Does the same with one more score in each sum, a sink, which has no value to add. It is passed
  // in base 2 for both rows, and minus infinity means no sink.
  __device__ __forceinline__ void finish(const RowFactors& sink, RowFactors& inverse,
                                         RowFactors& log2_sum) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float seen = origin(half);
      const float largest = larger(seen, sink[half]);
      const float base = largest == hidden_score() ? 0.0f : largest;
      const float factor = exp2_fast(seen - base);
      const float sum = row_sum(sum_[half]) * factor + exp2_fast(sink[half] - base);
      inverse[half] = sum == 0 ? 0.0f : factor / sum;
      log2_sum[half] = base + __log2f(sum);
    }
  }

 private:
  // Raises the largest score to the tile's largest. Returns the factor.
  template <int Slack, bool Low, int Registers>
  __device__ __forceinline__ float raise(const float (&scores)[Registers], int half) {
    float largest = row_max(largest_of(scores, half));
    if (Low && largest * unit_ == hidden_score()) largest = hidden_score();
    if (Slack > 0 && (largest - largest_[half]) * unit_ <= Slack) largest = largest_[half];
    // The sums so far are relative to a rounded product. A fused multiply-add would not round it,
    // and its factor would not be 1 when the largest score has not grown.
    const float before = __fmul_rn(largest_[half], unit_);
    largest_[half] = largest;
    const float factor = exp2_fast(before - base(half));
    sum_[half] *= factor;
    return factor;
  }

  template <int Registers>
  __device__ __forceinline__ void weigh(float (&scores)[Registers], int half) {
    const float origin = base(half) - shift_;
    float sums[2] = {sum_[half], 0};
#pragma unroll
    for (int i = 0; i < Registers; ++i) {
      if (register_row(i) != half * 8) continue;
      scores[i] = exp2_fast(fmaf(scores[i], unit_, -origin));
      sums[i % 2] += scores[i];
    }
    sum_[half] = sums[0] + sums[1];
  }

  // Returns the largest score in base 2. A row that has seen nothing yet has p of zero and not of
  // NaN.
  __device__ __forceinline__ float base(int half) const {
    return largest_[half] == hidden_score() ? 0.0f : __fmul_rn(largest_[half], unit_);
  }

  // Returns the score in base 2 whose p is 1.
  __device__ __forceinline__ float origin(int half) const {
    return largest_[half] == hidden_score() ? hidden_score() : largest_[half] * unit_ - shift_;
  }

  // Finds the largest score. It keeps four maxima side by side, since each waits for the one before
  // it.
  template <int Registers>
  __device__ __forceinline__ float largest_of(const float (&scores)[Registers], int half) const {
    float parts[4];
#pragma unroll
    for (float& part : parts) part = largest_[half];
#pragma unroll
    for (int i = 0; i < Registers; ++i) {
      if (register_row(i) != half * 8) continue;
      float& part = parts[i / 4 % 2 * 2 + i % 2];
      part = larger(part, scores[i]);
    }
    return larger(larger(parts[0], parts[1]), larger(parts[2], parts[3]));
  }

  float unit_, shift_;
  float largest_[2] = {hidden_score(), hidden_score()};
  float sum_[2] = {0, 0};  // this thread's part
};

}  // namespace kernwright
