#include <kernwright/config.cuh>

using namespace kernwright;
using namespace kernwright::config;

// c_reference[n] = a[n] + b[n], c_magnitude[n] = |a[n]| + |b[n]|, not rounded to the operation's
// type.
extern "C" __global__ void vector_add_reference(KW_PARAMETERS(vector_add_reference)) {
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
       i += stride) {
    const float x = to_float(a[i]);
    const float y = to_float(b[i]);
    c_reference[i] = x + y;
    c_magnitude[i] = fabsf(x) + fabsf(y);
  }
}
