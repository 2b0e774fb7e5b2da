#include <kernwright/matmul/group_drawing.cuh>
#include <kernwright/quantized/drawing.cuh>

using namespace kernwright;
using namespace kernwright::config;

// Every kernel goes through the experts and their rows, and fills the tensors that are passed. The
// rows of a that belong to no expert are left as they are; such rows of d hold a number that shows
// when it is overwritten.

// Streams of random numbers: each quantity has its own.
enum Stream { kRow = 10, kBias, kRowOf, kRowScale };

constexpr float kUnwritten = 777;

struct Draw {
  WeightDraw weights;  // of the first expert
  long long experts, rows, room, tokens, places, rows_of_b;

  __device__ unsigned long long bits(Stream stream, long long i) const {
    return hash_at(hash_at(weights.seed, stream), static_cast<unsigned long long>(i));
  }
  __device__ float number(Stream stream, long long i) const {
    const unsigned long long any = bits(stream, i);
    return weights.set == kExactWeights ? static_cast<float>(any % 7) - 3 : normal(any);
  }
  // Returns an element of a. A few rows have NaN in a set with NaN.
  __device__ float element(long long row, long long column) const {
    const long long i = row * weights.k + column;
    const bool is_nan = weights.set == kNanWeights && row % 3 == 1 && bits(kRow, i) % 61 == 0;
    return is_nan ? NAN : number(kRow, i);
  }
  __device__ float row_scale(long long i) const {
    const unsigned long long any = bits(kRowScale, i);
    return weights.set == kExactWeights ? 0.5f * static_cast<float>(1 << any % 3)
                                        : static_cast<float>(any % 4096 + 1) / 4096;
  }
  __device__ void fill_weights(unsigned char* b, scale_t* b_scale, unsigned char* b_zero,
                               long long code_bytes, long long factors) const {
    for (long long e = 0; e < experts; ++e) {
      WeightDraw own = weights;
      own.seed = hash_at(weights.seed, static_cast<unsigned long long>(e));
      own.fill(b ? b + e * code_bytes : nullptr, b_scale ? b_scale + e * factors : nullptr,
               b_zero ? b_zero + e * factors : nullptr, code_bytes, factors);
    }
  }
  __device__ void fill_row(dtype_t* a, long long row) const {
    for (long long c = threadIdx.x; c < weights.k; c += blockDim.x) {
      a[row * weights.k + c] = from_float<dtype_t>(element(row, c));
    }
  }
  __device__ void fill(dtype_t* a, out_t* bias, int* row_of, float* row_scales, int* ends,
                       int* counts, out_t* d) const {
    const long long start = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
    const GroupDraw shares(weights.seed, weights.set == kTimingWeights, experts, rows, room);
    shares.each(ends, counts, [&](long long e, long long first, long long count) {
      if (!a || a_rows == a_rows_indexed) return;
      for (long long r = (blockIdx.x + e) % gridDim.x; r < count; r += gridDim.x) {
        fill_row(a, first + r);
      }
    });
    if (a && a_rows == a_rows_indexed) {
      for (long long r = blockIdx.x; r < tokens; r += gridDim.x) fill_row(a, r);
    }
    for (long long i = start; bias && i < experts * rows_of_b; i += stride) {
      bias[i] = from_float<out_t>(number(kBias, i));
    }
    for (long long i = start; row_of && i < rows; i += stride) {
      row_of[i] = static_cast<int>(bits(kRowOf, i) % static_cast<unsigned long long>(tokens));
    }
    for (long long i = start; row_scales && i < places; i += stride) row_scales[i] = row_scale(i);
    for (long long i = start; d && i < places * weights.n; i += stride) {
      d[i] = from_float<out_t>(kUnwritten);
    }
  }
};

#define DRAW(set)                                                                           \
  const Draw draw{{set, static_cast<unsigned long long>(seed), n, k, group, first, groups}, \
                  experts,                                                                  \
                  rows,                                                                     \
                  room,                                                                     \
                  tokens,                                                                   \
                  places,                                                                   \
                  rows_of_b};                                                               \
  if (b || b_scale || b_zero) draw.fill_weights(b, b_scale, b_zero, code_bytes, factors);   \
  draw.fill(a, bias, row_of, row_scale, ends, counts, d)

// Draws codes that are all as probable, scales between 2^-6 and 2^-5, normal numbers, and experts
// of unlike sizes.
extern "C" __global__ void grouped_quantized_matmul_timing(
    KW_PARAMETERS(grouped_quantized_matmul_timing)) {
  DRAW(kTimingWeights);
}

// Draws numbers from -3 to 3, and scales that are powers of two. Experts are even, or many are
// empty, or one has all rows, or rows at the end belong to no expert.
extern "C" __global__ void grouped_quantized_matmul_exact(
    KW_PARAMETERS(grouped_quantized_matmul_exact)) {
  DRAW(kExactWeights);
}

// Draws NaN here and there in a, among the scales, and the codes if these have it.
extern "C" __global__ void grouped_quantized_matmul_nan(
    KW_PARAMETERS(grouped_quantized_matmul_nan)) {
  DRAW(kNanWeights);
}
