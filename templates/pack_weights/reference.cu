#include <kernwright/config.cuh>
#include <kernwright/math/types.cuh>
#include <kernwright/quantized/mxfp4_word.cuh>

using namespace kernwright;
using namespace kernwright::config;

constexpr bool kIsHalf = weights == weights_int4 || weights == weights_mxfp4;
constexpr bool kIntegers = weights == weights_int4 || weights == weights_int8;

// The weights of a checkpoint, one element at a time.
struct Checkpoint {
  const unsigned char* b;
  const unsigned char* zeros;
  long long n, k, group, first, groups, rows;

  // Returns the row that belongs to a row of blocks, or -1.
  __device__ long long row_of(long long place) const {
    if (gate == gate_none) return place < n ? place : -1;
    const long long pair = place / 16 * 8 + place % 8, half = place / 8 % 2;
    if (pair >= n) return -1;
    return gate == gate_stacked ? half * n + pair : 2 * pair + half;
  }
  // Returns the place of row `row` among the nibbles of eight rows.
  __device__ static long long nibble_of(long long row) {
    if (source != source_awq) return row % 8;
    const long long order[] = {0, 4, 1, 5, 2, 6, 3, 7};
    return order[row % 8];
  }
  __device__ int code(long long row, long long column) const {
    if (source == source_awq) {
      const long long nibble = nibble_of(row);
      return b[column * (rows / 2) + row / 8 * 4 + nibble / 2] >> nibble % 2 * 4 & 15;
    }
    if (source == source_gptq) {
      const long long in_word = kIsHalf ? 8 : 4;
      const unsigned char* const word = b + (column / in_word * rows + row) * 4;
      if (!kIsHalf) return word[column % 4];
      return word[column % 8 / 2] >> column % 2 * 4 & 15;
    }
    if (!kIsHalf) return b[row * k + column];
    return b[(row * k + column) / 2] >> column % 2 * 4 & 15;
  }
  // Returns the zero point of a group.
  __device__ int zero_point(long long row, long long number) const {
    if (!kIntegers) return 0;
    if (config::zero == zero_none) return kIsHalf ? 8 : 128;
    int stored = 0;
    if (source == source_rows) {
      stored = zeros[row * groups + number];
    } else if (kIsHalf) {
      const long long nibble = nibble_of(row);
      const long long byte = number * (rows / 2) + row / 8 * 4 + nibble / 2;
      stored = zeros[byte] >> nibble % 2 * 4 & 15;
    } else {
      stored = zeros[number * rows + row];
    }
    return stored + (config::zero == zero_less_one ? 1 : 0);
  }
  // Returns the code for a place of the blocks, which stands for 0 if there is no such element.
  __device__ int code_or_none(long long place, long long column) const {
    const long long row = row_of(place);
    if (row < 0) return kIntegers && config::zero == zero_none ? zero_point(0, 0) : 0;
    if (column < k) return code(row, column);
    const int none = zero_point(row, groups - 1), most = kIsHalf ? 15 : 255;
    return none < most ? none : most;
  }
};

__device__ void write(float* to, float* magnitude, long long i, float x) {
  to[i] = x;
  magnitude[i] = fabsf(x);
}

// Packs one code of 8 bits, or two of 4, in each thread, and then one scale with its zero point, of
// the expert blockIdx.y.
extern "C" __global__ void pack_weights_reference(KW_PARAMETERS(pack_weights_reference)) {
  const long long expert = blockIdx.y, own_factors = expert * packed_rows * groups;
  const long long zero_bits = source == source_rows || !kIsHalf ? 8 : 4;
  const Checkpoint given{b + expert * rows * k * (kIsHalf ? 4 : 8) / 8,
                         b_zero ? b_zero + expert * rows * groups * zero_bits / 8 : nullptr,
                         n,
                         k,
                         group,
                         first,
                         groups,
                         rows};
  b_scale += expert * rows * groups;
  const long long start = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  const long long blocks = (k + 63) / 64, bytes = packed_rows * blocks * (kIsHalf ? 32 : 64);
  for (long long i = start; i < bytes; i += stride) {
    const long long block = i / (kIsHalf ? 2048 : 4096), in = i % (kIsHalf ? 2048 : 4096);
    const long long lane = in % 512 / 16;
    const auto at = [&](long long warp, long long step, long long value) {
      const long long place = block / blocks * 64 + warp * 16 + value / 2 % 2 * 8 + lane / 4;
      const long long column =
          block % blocks * 64 + step * 16 + value / 4 * 8 + lane % 4 * 2 + value % 2;
      return given.code_or_none(place, column);
    };
    int byte = 0;
    if (kIsHalf) {
      unsigned half = 0;  // of a word: four nibbles
      for (int j = 0; j < 4; ++j) half |= at(in / 512, in % 16 / 4, j * 2 + in % 4 / 2) << 4 * j;
      if (weights == weights_mxfp4) half = packed_mxfp4(half);
      byte = static_cast<int>(half >> in % 2 * 8 & 255);
    } else {
      byte = at(in / 1024, in % 1024 / 512 * 2 + in % 16 / 8, in % 8);
    }
    write(packed_reference, packed_magnitude, expert * bytes + i, static_cast<float>(byte));
  }
  for (long long i = start; i < packed_rows * groups; i += stride) {
    const long long in = i % 64, number = i / 64 % groups;
    const long long place = i / 64 / groups * 64 + in / 16 * 16 + in % 2 * 8 + in % 16 / 2;
    const long long row = given.row_of(place);
    const long long at = source == source_rows ? row * groups + number : number * rows + row;
    write(packed_scale_reference, packed_scale_magnitude, own_factors + i,
          row < 0 ? 0.0f : to_float(b_scale[at]));
    if (config::zero != zero_none) {
      const int stored = row < 0 ? 0 : given.zero_point(row, number);
      write(packed_zero_reference, packed_zero_magnitude, own_factors + i,
            static_cast<float>(stored % 256));
    }
  }
}
