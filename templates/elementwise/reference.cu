#include <kernwright/config.cuh>
#include <kernwright/math/formula_reference.cuh>

using namespace kernwright;
using namespace kernwright::config;

template <typename T>
__device__ Traced element(const T* from, long long i) {
  return from == nullptr ? 0.0 : static_cast<double>(to_float(from[i]));
}

// r_reference[n] is the formula's result. It is not rounded to the result's type, but limited to
// its range if that type saturates. The errors of fp32 arithmetic are relative to r_magnitude[n].
extern "C" __global__ void elementwise_reference(KW_PARAMETERS(elementwise_reference)) {
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
       i += stride) {
    const Traced r = formula<TracedMath>(element(x, i), element(y, i), element(z, i), element(w, i),
                                         static_cast<double>(a), static_cast<double>(b));
    const double limit = out == out_fp8_e4m3 ? 448 : 1e300;
    r_reference[i] = static_cast<float>(smaller(larger(r.value, -limit), limit));
    r_magnitude[i] = static_cast<float>(r.error);
  }
}
