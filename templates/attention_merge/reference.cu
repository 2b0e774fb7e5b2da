#include <kernwright/attention/places.cuh>
#include <kernwright/math/types.cuh>

using namespace kernwright;
using namespace kernwright::config;

constexpr double kLn2 = 0.69314718055994530942;

// Computes one element of o in each iteration, all in fp64, and with the first of a row its lse.
// Parts whose lse is minus infinity are not read. value and magnitude are contiguous.
//
// An error of the largest lse is an error of the result, so lse_magnitude = 1 + |max|.
extern "C" __global__ void attention_merge_reference(KW_PARAMETERS(attention_merge_reference)) {
  const double unit = config::lse_parts == lse_parts_base2 ? kLn2 : 1.0;
  const long long row_count = batch * heads * q_len;
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < row_count * head_dim_v; i += stride) {
    const long long d = i % head_dim_v;
    const long long row = i / head_dim_v;
    const long long token = row % q_len;
    const long long head = row / q_len % heads;
    const long long sequence = row / q_len / heads;

    double most = -HUGE_VAL;
    for (long long part = 0; part < parts; ++part) {
      most = larger(most, unit * lse_parts[part * row_count + row]);
    }
    const bool nothing = most == -HUGE_VAL;
    double sum = 0;
    double value = 0;
    double absolute = 0;
    for (long long part = 0; part < parts; ++part) {
      const double exponent = unit * lse_parts[part * row_count + row];
      if (exponent == -HUGE_VAL) continue;
      const double weight = exp(exponent - most);
      const double x = to_float(
          o_parts[place_of(part * batch + sequence, token, head, q_len, heads, head_dim_v, ldp) +
                  d]);
      sum += weight;
      value += weight * x;
      absolute += weight * fabs(x);
    }
    const long long own = place_of(sequence, token, head, q_len, heads, head_dim_v,
                                   layout == layout_bshd ? heads * head_dim_v : head_dim_v);
    o_reference[own + d] = nothing ? 0.0f : static_cast<float>(value / sum);
    o_magnitude[own + d] = nothing ? 0.0f : static_cast<float>(absolute / sum);
    if (lse == lse_none || d != 0) continue;
    const double out_unit = lse == lse_base2 ? kLn2 : 1.0;
    lse_reference[row] = static_cast<float>(nothing ? most : (most + log(sum)) / out_unit);
    lse_magnitude[row] = nothing ? 1.0f : static_cast<float>((1 + fabs(most)) / out_unit);
  }
}
