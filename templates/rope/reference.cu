#include <kernwright/rope/rotation_reference.cuh>

using namespace kernwright;
using namespace kernwright::config;

// Computes one element of q, k or v in each iteration. Results are not rounded to the operation's
// type.
extern "C" __global__ void rope_reference(KW_PARAMETERS(rope_reference)) {
  const long long all_heads = heads + (append == append_cache ? 2 : 1) * kv_heads;
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < tokens * all_heads * head_dim; i += stride) {
    const long long d = i % head_dim;
    const long long head = i / head_dim % all_heads;
    const long long token = i / head_dim / all_heads;
    const float* const cosines = cosine + token * (head_dim / 2);
    const float* const sines = sine + token * (head_dim / 2);
    if (head < heads) {
      const long long at = (token * heads + head) * head_dim;
      rotate(q + at, cosines, sines, head_dim, d, q_out_reference + at + d,
             q_out_magnitude + at + d);
    } else if (head < heads + kv_heads) {
      const long long at = (token * kv_heads + head - heads) * head_dim;
      rotate(k + at, cosines, sines, head_dim, d, k_out_reference + at + d,
             k_out_magnitude + at + d);
    } else {
      const long long at = (token * kv_heads + head - heads - kv_heads) * head_dim + d;
      v_out_reference[at] = to_float(v[at]);
      v_out_magnitude[at] = fabsf(v_out_reference[at]);
    }
  }
}
