#include <kernwright/attention/drawing.cuh>
#include <kernwright/math/types.cuh>

using namespace kernwright;
using namespace kernwright::config;

// Returns the elements of a row that share a scale.
__device__ long long group_of(long long columns) {
  return scaling == scaling_block ? 128 : columns;
}

// Draws x from the normal distribution, in each group times a power of two of its own.
extern "C" __global__ void quantize_rows_timing(KW_PARAMETERS(quantize_rows_timing)) {
  const long long first = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  const long long group = group_of(columns);
  const auto numbers = static_cast<unsigned long long>(seed);
  for (long long i = first; i < rows * columns; i += stride) {
    const auto own = static_cast<unsigned long long>(i / columns + i % columns / group * rows);
    const int power = static_cast<int>(hash_at(hash_at(numbers, 0), own) % 7);
    const float number = normal(hash_at(hash_at(numbers, 1), static_cast<unsigned long long>(i)));
    x[i] = from_float<dtype_t>(ldexpf(number, power - 2));
  }
}

// Draws codes times powers of two: then the largest element of a group is the largest code, and
// every code is met exactly. Some groups are zeros alone.
extern "C" __global__ void quantize_rows_exact(KW_PARAMETERS(quantize_rows_exact)) {
  const long long first = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  const long long group = group_of(columns);
  const auto numbers = static_cast<unsigned long long>(seed);
  for (long long i = first; i < rows * columns; i += stride) {
    const long long column = i % columns, start = column / group * group;
    const long long length = start + group < columns ? group : columns - start;
    const auto own = static_cast<unsigned long long>(i / columns + column / group * rows);
    const unsigned long long of_group = hash_at(hash_at(numbers, 0), own);
    const unsigned long long bits =
        hash_at(hash_at(numbers, 1), static_cast<unsigned long long>(i));
    const bool is_largest =
        column - start ==
        static_cast<long long>((of_group >> 8) % static_cast<unsigned long long>(length));
    const float end = out == out_int8 ? 127.0f : 448.0f;
    const float any = out == out_int8 ? static_cast<float>(bits % 128)
                                      : to_float(fp8_e4m3{static_cast<unsigned char>(bits % 127)});
    const float code = sign(bits >> 32) * (is_largest ? end : any);
    const int power = static_cast<int>(of_group % 8) - 3;
    x[i] = from_float<dtype_t>(power == 4 ? 0.0f : ldexpf(code, power));
  }
}
