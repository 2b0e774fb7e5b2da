#pragma once
// Quantized weights for references: one element at a time, from the layout of the problem. Packed
// weights are blocks of 64 rows x 64 columns of k, one row of blocks after another.

#include <kernwright/config.cuh>
#include <kernwright/math/types.cuh>
#include <kernwright/quantized/mxfp4_word.cuh>

namespace kernwright {

struct StoredWeights {
  const unsigned char* b;
  const config::scale_t* scales;
  const unsigned char* zeros;
  long long n, k, group, first, groups;

  // Returns the row of blocks or of a checkpoint that has row `r`, of gates and then of ups.
  __device__ long long place_of(long long r) const {
    using namespace config;
    if (gate == gate_none || !is_packed) return r;
    return r % n / 8 * 16 + r / n * 8 + r % n % 8;
  }
  // Returns the code of column `c` of the row at `place`.
  __device__ int code(long long place, long long c) const {
    using namespace config;
    const bool is_half = weights == weights_int4 || weights == weights_mxfp4;
    if (!is_packed) {
      if (!is_half) return b[place * k + c];
      return b[(place * k + c) / 2] >> c % 2 * 4 & 15;
    }
    const long long block = place / 64 * ((k + 63) / 64) + c / 64;
    const long long warp = place % 64 / 16, lane = place % 8 * 4 + c % 8 / 2, step = c % 64 / 16;
    const long long value = c % 2 + place % 16 / 8 * 2 + c % 16 / 8 * 4;  // of the lane's eight
    if (is_half) {
      const long long nibble = value / 2 + value % 2 * 4;
      const unsigned char* const bytes = b + block * 2048 + warp * 512 + lane * 16 + step * 4;
      const unsigned word = bytes[0] | bytes[1] << 8 | bytes[2] << 16 | unsigned{bytes[3]} << 24;
      return (weights == weights_mxfp4 ? unpacked_mxfp4(word) : word) >> nibble * 4 & 15;
    }
    return b[block * 4096 + warp * 1024 + step / 2 * 512 + lane * 16 + step % 2 * 8 + value];
  }
  // Returns the place of the scale and the zero point of that column.
  __device__ long long factor_of(long long place, long long c) const {
    using namespace config;
    const long long in_row = (c + group - first) / group;
    if (!is_packed) return place * groups + in_row;
    return (place / 64 * groups + in_row) * 64 + place % 64 / 16 * 16 + place % 8 * 2 +
           place % 16 / 8;
  }
  __device__ double at(long long r, long long c) const {
    using namespace config;
    const long long place = place_of(r), factor = factor_of(place, c);
    const int q = code(place, c);
    if (weights == weights_mxfp4) {
      const double values[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
      const int exponent = static_cast<int>(to_float(scales[factor]));
      const double scale = exponent == 255 ? static_cast<double>(NAN) : ldexp(1.0, exponent - 127);
      return (q < 8 ? values[q % 8] : -values[q % 8]) * scale;
    }
    const double scale = to_float(scales[factor]);
    if (weights == weights_fp8_e4m3) {
      return to_float(fp8_e4m3{static_cast<unsigned char>(q)}) * scale;
    }
    const int zero_point = zero == zero_code ? zeros[factor] : weights == weights_int4 ? 8 : 128;
    return (q - zero_point) * scale;
  }
};

}  // namespace kernwright
