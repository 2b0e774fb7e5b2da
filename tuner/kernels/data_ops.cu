// Drawing and comparing whole tensors. Compiled once per element type, which is given as ELEMENT.
// Every kernel is a grid-stride loop with 64-bit indices: tensors may exceed 2^31 elements.
// The formulas are those of host_data_ops.cpp; the tests hold the two against each other.
#include <kernwright/types.cuh>

using element = ELEMENT;
using kernwright::from_float;
using kernwright::to_float;

// Beside the storage types of types.cuh: wide and integer elements.
__device__ double widen(double x) { return x; }
__device__ double widen(int x) { return x; }
__device__ double widen(signed char x) { return x; }
template <typename T>
__device__ double widen(T x) {
  return to_float(x);
}
template <typename T>
struct Rounded {
  static __device__ T of(float x) { return from_float<T>(x); }
};
template <>
struct Rounded<double> {
  static __device__ double of(float x) { return x; }
};
template <>
struct Rounded<int> {
  static __device__ int of(float x) { return __float2int_rn(x); }
};
template <>
struct Rounded<signed char> {
  static __device__ signed char of(float x) { return static_cast<signed char>(__float2int_rn(x)); }
};

// Layouts shared with device_data_ops.cpp.
struct DrawParameters {
  unsigned long long seed;
  long long elements;
  long long small_integers;
};
struct CompareParameters {
  long long elements;
  double accumulate_unit;
  double output_unit;
  double floor;
};
struct CompareResult {
  unsigned long long max_error;  // bits of a non-negative double, which order like the double
  unsigned long long mismatches;
  unsigned long long first;
};

// The finaliser of SplitMix64 on a counter.
__device__ unsigned long long hash_at(unsigned long long seed, long long i) {
  unsigned long long z = seed + (static_cast<unsigned long long>(i) + 1) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

extern "C" __global__ void kernwright_draw(element* to, const DrawParameters* parameters) {
  const DrawParameters p = *parameters;
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < p.elements;
       i += stride) {
    const unsigned long long bits = hash_at(p.seed, i);
    float value;
    if (p.small_integers) {
      value = static_cast<float>(static_cast<int>(((bits >> 32) * 7) >> 32) - 3);
    } else {                                                            // Box-Muller
      const float u = (static_cast<float>(bits >> 40) + 1) * 0x1p-24f;  // (0, 1]
      const float v = static_cast<float>(bits & 0xffffff) * 0x1p-24f;
      value = sqrtf(-2 * logf(u)) * cospif(2 * v);
    }
    to[i] = Rounded<element>::of(value);
  }
}

extern "C" __global__ void kernwright_compare(const element* actual, const float* reference,
                                              const float* magnitude,
                                              const CompareParameters* parameters,
                                              CompareResult* result) {
  const CompareParameters p = *parameters;
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  double worst = 0;
  unsigned long long mismatches = 0;
  unsigned long long first = ~0ull;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < p.elements;
       i += stride) {
    const double r = reference[i];
    const double error = fabs(widen(actual[i]) - r);
    const double bound = p.accumulate_unit * magnitude[i] + p.output_unit * fabs(r) + p.floor;
    const bool passes = error <= bound;  // false for NaN
    if (error != 0) worst = fmax(worst, error / bound < 1e30 ? error / bound : 1e30);
    if (!passes) {
      ++mismatches;
      if (first == ~0ull) first = static_cast<unsigned long long>(i);
    }
  }
  unsigned long long worst_bits = static_cast<unsigned long long>(__double_as_longlong(worst));
  for (int lane = 16; lane > 0; lane /= 2) {
    const unsigned long long other = __shfl_down_sync(~0u, worst_bits, lane);
    worst_bits = other > worst_bits ? other : worst_bits;
  }
  if (threadIdx.x % 32 == 0) atomicMax(&result->max_error, worst_bits);
  if (mismatches != 0) {
    atomicAdd(&result->mismatches, mismatches);
    atomicMin(&result->first, first);
  }
}
