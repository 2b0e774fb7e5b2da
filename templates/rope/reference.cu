#include <kernwright/rope/rotation_reference.cuh>

using namespace kernwright;
using namespace kernwright::config;

// Computes one element of q, k or v in each iteration. Results are not rounded to the operation's
// type.
extern "C" __global__ void rope_reference(const dtype_t* q, const dtype_t* k, const dtype_t* v,
                                          const float* cosine, const float* sine, float* q_value,
                                          float* q_magnitude, float* k_value, float* k_magnitude,
                                          float* v_value, float* v_magnitude, long long token_count,
                                          long long q_heads, long long k_heads, long long size) {
  const long long all_heads = q_heads + (append == append_cache ? 2 : 1) * k_heads;
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < token_count * all_heads * size; i += stride) {
    const long long d = i % size;
    const long long head = i / size % all_heads;
    const long long token = i / size / all_heads;
    const float* const cosines = cosine + token * (size / 2);
    const float* const sines = sine + token * (size / 2);
    if (head < q_heads) {
      const long long at = (token * q_heads + head) * size;
      rotate(q + at, cosines, sines, size, d, q_value + at + d, q_magnitude + at + d);
    } else if (head < q_heads + k_heads) {
      const long long at = (token * k_heads + head - q_heads) * size;
      rotate(k + at, cosines, sines, size, d, k_value + at + d, k_magnitude + at + d);
    } else {
      const long long at = (token * k_heads + head - q_heads - k_heads) * size + d;
      v_value[at] = to_float(v[at]);
      v_magnitude[at] = fabsf(v_value[at]);
    }
  }
}
