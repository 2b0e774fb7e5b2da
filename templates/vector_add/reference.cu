#include <kernwright/config.cuh>

using namespace kernwright;
using namespace kernwright::config;

// value[n] = a[n] + b[n], magnitude[n] = |a[n]| + |b[n]|, not rounded to the operation's type.
extern "C" __global__ void vector_add_reference(const dtype_t* a, const dtype_t* b, float* value,
                                                float* magnitude, long long count) {
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    const float x = to_float(a[i]);
    const float y = to_float(b[i]);
    value[i] = x + y;
    magnitude[i] = fabsf(x) + fabsf(y);
  }
}
