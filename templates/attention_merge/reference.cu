#include <kernwright/attention/places.cuh>
#include <kernwright/math/types.cuh>

using namespace kernwright;
using namespace kernwright::config;

constexpr double kLn2 = 0.69314718055994530942;

// Computes one element of o in each iteration, all in fp64, and with the first of a row its lse.
// Parts whose lse is minus infinity are not read. value and magnitude are contiguous.
//
// An error of the largest lse is an error of the result, so lse_magnitude = 1 + |max|.
extern "C" __global__ void attention_merge_reference(
    const dtype_t* o_parts, const float* lse_of_part, float* o_value, float* o_magnitude,
    float* lse_value, float* lse_magnitude, long long part_count, long long sequences,
    long long all_heads, long long tokens, long long size, long long pitch) {
  const double unit = lse_parts == lse_parts_base2 ? kLn2 : 1.0;
  const long long row_count = sequences * all_heads * tokens;
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < row_count * size; i += stride) {
    const long long d = i % size;
    const long long row = i / size;
    const long long token = row % tokens;
    const long long head = row / tokens % all_heads;
    const long long sequence = row / tokens / all_heads;

    double most = -HUGE_VAL;
    for (long long part = 0; part < part_count; ++part) {
      most = larger(most, unit * lse_of_part[part * row_count + row]);
    }
    const bool nothing = most == -HUGE_VAL;
    double sum = 0;
    double value = 0;
    double absolute = 0;
    for (long long part = 0; part < part_count; ++part) {
      const double exponent = unit * lse_of_part[part * row_count + row];
      if (exponent == -HUGE_VAL) continue;
      const double weight = exp(exponent - most);
      const double x = to_float(o_parts[place_of(part * sequences + sequence, token, head, tokens,
                                                 all_heads, size, pitch) +
                                        d]);
      sum += weight;
      value += weight * x;
      absolute += weight * fabs(x);
    }
    const long long own = place_of(sequence, token, head, tokens, all_heads, size,
                                   layout == layout_bshd ? all_heads * size : size);
    o_value[own + d] = nothing ? 0.0f : static_cast<float>(value / sum);
    o_magnitude[own + d] = nothing ? 0.0f : static_cast<float>(absolute / sum);
    if (lse == lse_none || d != 0) continue;
    const double out_unit = lse == lse_base2 ? kLn2 : 1.0;
    lse_value[row] = static_cast<float>(nothing ? most : (most + log(sum)) / out_unit);
    lse_magnitude[row] = nothing ? 1.0f : static_cast<float>((1 + fabs(most)) / out_unit);
  }
}
