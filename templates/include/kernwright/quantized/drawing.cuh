#pragma once
// Draws quantized weights, in the layout of the problem. The rows and columns that only fill up
// blocks are as pack_weights leaves them: codes of zero, and scales of 0.

#include <kernwright/attention/drawing.cuh>
#include <kernwright/config.cuh>
#include <kernwright/math/types.cuh>
#include <kernwright/quantized/mxfp4_word.cuh>

namespace kernwright {

enum WeightSet { kTimingWeights, kExactWeights, kNanWeights };

struct WeightDraw {
  WeightSet set;
  unsigned long long seed;
  long long n, k, group, first, groups;

  static constexpr int kBits =
      config::weights == config::weights_int4 || config::weights == config::weights_mxfp4 ? 4 : 8;
  static constexpr bool kIntegers =
      config::weights == config::weights_int4 || config::weights == config::weights_int8;

  // Fills the tensors that are not null, with all threads of the grid.
  __device__ void fill(unsigned char* b, config::scale_t* b_scale, unsigned char* b_zero,
                       long long b_bytes, long long factors) const {
    const long long start = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
    for (long long i = start; b && i < b_bytes; i += stride) b[i] = byte(i);
    for (long long i = start; i < factors; i += stride) {
      const Factor at = factor(i);
      if (b_scale) b_scale[i] = at.row < 0 ? config::scale_t{} : scale(at.row, at.group);
      if (b_zero) b_zero[i] = at.row < 0 ? 0 : static_cast<unsigned char>(zero(at.row, at.group));
    }
  }

 private:
  struct Factor {
    long long row, group;  // row -1: none
  };

  __device__ unsigned long long bits(int stream, long long row, long long column) const {
    return config::hash_at(config::hash_at(seed, stream),
                           static_cast<unsigned long long>(row * (k + groups) + column));
  }
  // Returns a number below 8 by which few rows are chosen, so that others have no NaN.
  __device__ int mark(long long row) const { return static_cast<int>(bits(4, row, 0) % 8); }
  __device__ int zero(long long row, long long number) const {
    using namespace config;
    if (!kIntegers) return 0;
    if (config::zero == zero_none) return kBits == 4 ? 8 : 128;
    const unsigned long long any = bits(1, row, number);
    if (set == kExactWeights) return static_cast<int>(3 + any % (kBits == 4 ? 10 : 250));
    return static_cast<int>(any % (kBits == 4 ? 17 : 256));  // 16: a checkpoint may store 15 + 1
  }
  __device__ config::scale_t scale(long long row, long long number) const {
    using namespace config;
    const unsigned long long any = bits(2, row, number);
    const bool is_nan = set == kNanWeights && mark(row) == 0 && (any >> 32) % 3 == 0;
    const bool is_exact = set == kExactWeights;
    float factor = is_exact ? 0.5f * static_cast<float>(1 << any % 3)
                            : 0x1p-6f * (1 + static_cast<float>(any % 4096) / 4096);
    if (weights == weights_mxfp4) {
      factor = static_cast<float>(is_exact ? 126 + any % 3 : 119 + any % 4);
    }
    return from_float<scale_t>(is_nan ? weights == weights_mxfp4 ? 255.0f : NAN : factor);
  }
  __device__ int code(long long row, long long column) const {
    using namespace config;
    const unsigned long long any = bits(3, row, column);
    const int size = static_cast<int>(any % 4),
              sign = size == 0 ? 0 : static_cast<int>(any >> 8 & 1);
    if (weights == weights_fp8_e4m3) {
      const int codes[] = {0x00, 0x38, 0x40, 0x44};
      if (set == kNanWeights && mark(row) == 1 && (any >> 32) % 61 == 0) return 0x7f;
      return set == kExactWeights ? codes[size] | sign << 7
                                  : static_cast<int>(any % 127 | (any >> 8 & 1) << 7);
    }
    if (set != kExactWeights) return static_cast<int>(any % (1 << kBits));
    if (weights == weights_mxfp4) {
      const int codes[] = {0, 2, 4, 5};
      return codes[size] | sign << 3;
    }
    return zero(row, (column + group - first) / group) + (sign ? -size : size);
  }
  // Returns the code of a place that may only fill up a block.
  __device__ int code_or_none(long long row, long long column) const {
    using namespace config;
    if (row >= 0 && column < k) return code(row, column);
    if (row < 0) return config::zero == zero_none ? zero(0, 0) : 0;
    return ::min(zero(row, groups - 1), (1 << kBits) - 1);
  }
  // Returns the row of the weights at a row of blocks, or -1.
  __device__ long long row_at(long long place) const {
    using namespace config;
    if (gate == gate_none) return place < n ? place : -1;
    const long long row = place / 16 * 8 + place % 8;
    return row < n ? row + place % 16 / 8 * n : -1;
  }
  __device__ Factor factor(long long i) const {
    if (!config::is_packed) return {i / groups, i % groups};
    const long long in = i % 64;
    return {row_at(i / 64 / groups * 64 + in / 16 * 16 + in % 16 / 2 + in % 2 * 8),
            i / 64 % groups};
  }
  __device__ unsigned char byte(long long i) const {
    if (!config::is_packed) {
      if (kBits == 8) return static_cast<unsigned char>(code(i / k, i % k));
      const long long row = i / (k / 2), column = i % (k / 2) * 2;
      return static_cast<unsigned char>(code(row, column) | code(row, column + 1) << 4);
    }
    const long long block = i / (512 * kBits), in = i % (512 * kBits), lane = in % 512 / 16;
    const auto at = [&](long long warp, long long step, long long value) {
      const long long blocks = (k + 63) / 64;
      const long long row = block / blocks * 64 + warp * 16 + lane / 4 + value / 2 % 2 * 8;
      const long long column =
          block % blocks * 64 + step * 16 + value / 4 * 8 + lane % 4 * 2 + value % 2;
      return code_or_none(row_at(row), column);
    };
    if (kBits == 8) {
      return static_cast<unsigned char>(at(in / 1024, in / 512 % 2 * 2 + in % 16 / 8, in % 8));
    }
    unsigned half = 0;  // of a word: four nibbles
    for (int j = 0; j < 4; ++j) half |= at(in / 512, in % 16 / 4, j * 2 + in % 4 / 2) << 4 * j;
    if (config::weights == config::weights_mxfp4) half = packed_mxfp4(half);
    return static_cast<unsigned char>(half >> in % 2 * 8);
  }
};

}  // namespace kernwright
