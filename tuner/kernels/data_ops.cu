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

// Laid out as in device_data_ops.cpp. All zeros at first.
struct Finding {
  unsigned long long max_error;  // bits of a non-negative double, which order like the double
  unsigned long long mismatches;
  unsigned long long first;  // complement of the smallest place
  unsigned long long hash;
};

// The finaliser of SplitMix64 on a counter.
__device__ unsigned long long hash_at(unsigned long long seed, unsigned long long i) {
  unsigned long long z = seed + (i + 1) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

__device__ long long first_index() {
  return static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ long long stride() { return static_cast<long long>(gridDim.x) * blockDim.x; }

// The operators of the tuner's InputDistribution, in its order.
constexpr int kSmallIntegers = 1;
constexpr int kSigns = 2;

// Rows of so many elements, `pitch` apart.
struct Layout {
  __device__ Layout(double columns, double pitch)
      : columns(static_cast<long long>(columns)), pitch(static_cast<long long>(pitch)) {}
  __device__ bool contiguous() const { return columns == pitch; }

  long long columns, pitch;
};

// Numbers that may pass 32 bits come as doubles, which hold them exactly to 2^53.
extern "C" __global__ void kernwright_draw(element* to, double elements, double columns,
                                           double pitch, int seed_low, int seed_high,
                                           int distribution) {
  const long long count = static_cast<long long>(elements);
  const Layout layout(columns, pitch);
  const unsigned long long seed = static_cast<unsigned long long>(static_cast<unsigned>(seed_high))
                                      << 32 |
                                  static_cast<unsigned>(seed_low);
  for (long long i = first_index(); i < count; i += stride()) {
    const unsigned long long bits = hash_at(seed, static_cast<unsigned long long>(i));
    float value;
    if (distribution == kSigns) {
      value = static_cast<float>(static_cast<int>(((bits >> 32) * 3) >> 32) - 1);
    } else if (distribution == kSmallIntegers) {
      value = static_cast<float>(static_cast<int>(((bits >> 32) * 7) >> 32) - 3);
    } else {                                                            // Box-Muller
      const float u = (static_cast<float>(bits >> 40) + 1) * 0x1p-24f;  // (0, 1]
      const float v = static_cast<float>(bits & 0xffffff) * 0x1p-24f;
      value = sqrtf(-2 * logf(u)) * cospif(2 * v);
    }
    const long long place =
        layout.contiguous() ? i : i / layout.columns * layout.pitch + i % layout.columns;
    to[place] = Rounded<element>::of(value);
  }
}

constexpr unsigned char kGapByte = 0xFF;  // as in data_ops.h

// `span`: elements from the first to the last and what lies between rows.
extern "C" __global__ void kernwright_fill_gaps(element* to, double span, double columns,
                                                double pitch) {
  const Layout layout(columns, pitch);
  for (long long i = first_index(); i < static_cast<long long>(span); i += stride()) {
    if (i % layout.pitch < layout.columns) continue;
    for (unsigned byte = 0; byte < sizeof(element); ++byte) {
      reinterpret_cast<unsigned char*>(to + i)[byte] = kGapByte;
    }
  }
}

__device__ bool is_gap(const element* at) {
  bool same = true;
  for (unsigned byte = 0; byte < sizeof(element); ++byte) {
    same = same && reinterpret_cast<const unsigned char*>(at)[byte] == kGapByte;
  }
  return same;
}

// NaN stays NaN.
__device__ double limited(double x, double range_end) {
  return x > range_end ? range_end : x < -range_end ? -range_end : x;
}

extern "C" __global__ void kernwright_compare(const element* actual, const float* reference,
                                              const float* magnitude, Finding* finding, double span,
                                              double columns, double pitch, double accumulate_unit,
                                              double output_unit, double floor, double range_end,
                                              int exact, int nan) {
  const Layout layout(columns, pitch);
  double worst = 0;
  unsigned long long mismatches = 0;
  unsigned long long first = 0;
  for (long long place = first_index(); place < static_cast<long long>(span); place += stride()) {
    long long i = place;
    if (!layout.contiguous()) {
      const long long column = place % layout.pitch;
      i = place / layout.pitch * layout.columns + column;
      if (column >= layout.columns) {
        if (is_gap(actual + place)) continue;
        ++mismatches;
        if (first == 0) first = ~static_cast<unsigned long long>(place);
        continue;
      }
    }
    double r = reference[i];
    const double x = widen(actual[place]);
    if (nan != 0 && r != r) {
      const double expected = widen(Rounded<element>::of(reference[i]));
      if (x == expected || (x != x && expected != expected)) continue;
      worst = 1e30;
      ++mismatches;
      if (first == 0) first = ~static_cast<unsigned long long>(place);
      continue;
    }
    double bound = 0;
    if (exact) r = widen(Rounded<element>::of(reference[i]));
    r = limited(r, range_end);
    if (!exact) {
      bound = accumulate_unit * magnitude[i] + output_unit * fabs(r) + floor;
    }
    const double error = fabs(limited(x, range_end) - r);
    const bool passes = error <= bound;  // false for NaN
    if (error != 0) worst = fmax(worst, error / bound < 1e30 ? error / bound : 1e30);
    if (!passes) {
      ++mismatches;
      if (first == 0) first = ~static_cast<unsigned long long>(place);
    }
  }
  unsigned long long worst_bits = static_cast<unsigned long long>(__double_as_longlong(worst));
  for (int lane = 16; lane > 0; lane /= 2) {
    const unsigned long long other = __shfl_down_sync(~0u, worst_bits, lane);
    worst_bits = other > worst_bits ? other : worst_bits;
  }
  if (threadIdx.x % 32 == 0 && worst_bits != 0) atomicMax(&finding->max_error, worst_bits);
  if (mismatches != 0) {
    atomicAdd(&finding->mismatches, mismatches);
    atomicMax(&finding->first, first);
  }
}

// The words of 8 bytes that the region reaches into, of which only its own bytes count.
__device__ void hash_region(unsigned long long address, double bytes, Finding* finding) {
  const unsigned long long base = address & ~7ull;
  const unsigned long long end = address + static_cast<unsigned long long>(bytes);
  const long long words = static_cast<long long>((end - base + 7) / 8);
  unsigned long long sum = 0;
#pragma unroll 4
  for (long long i = first_index(); i < words; i += stride()) {
    const unsigned long long at = base + 8 * static_cast<unsigned long long>(i);
    unsigned long long bits = *reinterpret_cast<const unsigned long long*>(at);
    if (at < address) bits = bits >> 8 * (address - at) << 8 * (address - at);
    if (at + 8 > end) bits = bits << 8 * (at + 8 - end) >> 8 * (at + 8 - end);
    sum += hash_at(bits, static_cast<unsigned long long>(i));
  }
  for (int lane = 16; lane > 0; lane /= 2) sum += __shfl_down_sync(~0u, sum, lane);
  if (threadIdx.x % 32 == 0 && sum != 0) atomicAdd(&finding->hash, sum);
}

// Eight regions, so that the guards and inputs of a check take two launches. Empty ones are 0.
extern "C" __global__ void kernwright_hash(unsigned long long a0, unsigned long long a1,
                                           unsigned long long a2, unsigned long long a3,
                                           unsigned long long a4, unsigned long long a5,
                                           unsigned long long a6, unsigned long long a7,
                                           Finding* findings, double b0, double b1, double b2,
                                           double b3, double b4, double b5, double b6, double b7) {
  hash_region(a0, b0, findings);
  hash_region(a1, b1, findings + 1);
  hash_region(a2, b2, findings + 2);
  hash_region(a3, b3, findings + 3);
  hash_region(a4, b4, findings + 4);
  hash_region(a5, b5, findings + 5);
  hash_region(a6, b6, findings + 6);
  hash_region(a7, b7, findings + 7);
}
