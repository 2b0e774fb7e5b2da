// Draws and compares whole tensors. Compiled once for each element type, which is the macro
// ELEMENT. Every kernel is a grid-stride loop with 64-bit indices, since tensors may exceed 2^31
// elements. The formulas are the same as in host_data_ops.cpp; a test compares the results of both.
#include <kernwright/math/types.cuh>

using element = ELEMENT;
using kernwright::from_float;
using kernwright::to_float;

// Integer types. Integers of 32 and 64 bits must be equal to the reference.
template <typename T>
constexpr bool kInteger = false;
template <>
constexpr bool kInteger<signed char> = true;
template <>
constexpr bool kInteger<unsigned char> = true;
template <>
constexpr bool kInteger<bool> = true;
template <>
constexpr bool kInteger<int> = true;
template <>
constexpr bool kInteger<long long> = true;
constexpr bool kWide = kInteger<element> && sizeof(element) >= 4;
template <typename A, typename B>
constexpr bool kSame = false;
template <typename A>
constexpr bool kSame<A, A> = true;

// Conversions that types.cuh does not have.
__device__ double widen(double x) { return x; }
template <typename T>
__device__ double widen(T x) {
  return to_float(x);
}
// Returns whether an integer equals the reference.
template <typename T>
__device__ bool is_met(T x, kernwright::reference_t<T> reference) {
  if constexpr (kInteger<T>) return x == reference;
  return false;
}
// Returns the value of an element. A bool is read as its byte, so that other bytes than 0 and 1 are
// wrong.
__device__ double value_at(const element* at) {
  if constexpr (kSame<element, bool>) return *reinterpret_cast<const unsigned char*>(at);
  return widen(*at);
}
template <typename T>
struct Rounded {
  static __device__ T of(float x) { return from_float<T>(x); }
};
template <>
struct Rounded<double> {
  static __device__ double of(float x) { return x; }
};
// Returns x as an element; x is within the range of integer elements.
template <typename T>
__device__ T whole(long long x) {
  if constexpr (kInteger<T>) {
    return static_cast<T>(x);
  } else {
    return Rounded<T>::of(static_cast<float>(x));
  }
}

// Same layout as in device_data_ops.cpp. All zeros at first.
struct Finding {
  unsigned long long max_error;  // bits of a non-negative double, which are ordered like it
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

// The model's DrawKind, in its order.
enum DrawKind { kNormal, kSmallIntegers, kSigns, kUniform, kPermutation, kOffsets, kConstant };

// Rows of `row` elements, in levels of entries with gaps between them, the outermost first
// (model/operation/layout.h).
struct Layout {
  static constexpr int kMaxLevels = 3;

  __device__ Layout(double row, double levels, double count0, double pitch0, double count1,
                    double pitch1, double count2, double pitch2)
      : row(static_cast<long long>(row)),
        levels(static_cast<int>(levels)),
        count{static_cast<long long>(count0), static_cast<long long>(count1),
              static_cast<long long>(count2)},
        pitch{static_cast<long long>(pitch0), static_cast<long long>(pitch1),
              static_cast<long long>(pitch2)} {}
  __device__ bool contiguous() const { return levels == 0; }

  // Returns the place of element number `element`.
  __device__ long long place(long long element) const {
    if (contiguous()) return element;
    long long at = element % row;
    long long rest = element / row;
#pragma unroll
    for (int i = kMaxLevels - 1; i >= 0; --i) {
      if (i >= levels) continue;
      at += rest % count[i] * pitch[i];
      rest /= count[i];
    }
    return at;
  }

  // Returns the number of the element at `place`; -1 in a gap.
  __device__ long long element_at(long long place) const {
    if (contiguous()) return place;
    long long element = 0;
#pragma unroll
    for (int i = 0; i < kMaxLevels; ++i) {
      if (i >= levels) continue;
      const long long entry = place / pitch[i];
      if (entry >= count[i]) return -1;
      element = element * count[i] + entry;
      place %= pitch[i];
    }
    return place < row ? element * row + place : -1;
  }

  long long row;
  int levels;
  long long count[kMaxLevels], pitch[kMaxLevels];
};

// The parameters that describe a layout, and their names.
#define LAYOUT_PARAMETERS                                                                \
  double row, double levels, double count0, double pitch0, double count1, double pitch1, \
      double count2, double pitch2
#define LAYOUT_ARGUMENTS row, levels, count0, pitch0, count1, pitch1, count2, pitch2

// Returns the place of `i` in a permutation of `count`: a Feistel network of four rounds over the
// smallest even number of bits that hold `count`, applied until the place is below `count`.
__device__ unsigned long long permuted(unsigned long long seed, unsigned long long i,
                                       unsigned long long count) {
  unsigned half = 1;
  while ((1ull << 2 * half) < count) ++half;
  const unsigned long long mask = (1ull << half) - 1;
  do {
    unsigned long long left = i >> half, right = i & mask;
    for (int round = 0; round < 4; ++round) {
      const unsigned long long next = left ^ (hash_at(seed + round, right) & mask);
      left = right;
      right = next;
    }
    i = left << half | right;
  } while (i >= count);
  return i;
}

__device__ long long small_integer(unsigned long long bits, bool signs) {
  const long long value = signs ? static_cast<long long>(((bits >> 32) * 3) >> 32) - 1
                                : static_cast<long long>(((bits >> 32) * 7) >> 32) - 3;
  const long long positive = value < 0 ? -value : value;
  if constexpr (kSame<element, unsigned char>) return positive;
  if constexpr (kSame<element, bool>) return positive % 2;
  return value;
}

// Returns an element of an integer type.
__device__ long long integer(int kind, double from, double to, unsigned long long seed,
                             unsigned long long bits, long long row, long long column,
                             long long columns) {
  switch (kind) {
    case kUniform: {
      const auto values = static_cast<unsigned long long>(to - from) + 1;
      return static_cast<long long>(from) + static_cast<long long>(bits % values);
    }
    case kPermutation:
      return static_cast<long long>(permuted(hash_at(seed, static_cast<unsigned long long>(row)),
                                             static_cast<unsigned long long>(column),
                                             static_cast<unsigned long long>(columns)));
    case kOffsets: {
      if (column == 0) return 0;
      if (column == columns - 1) return static_cast<long long>(to);
      const double jitter = static_cast<double>(bits >> 11) * 0x1p-53;
      const double steps = __dadd_rn(static_cast<double>(column) - 0.5, jitter);
      return static_cast<long long>(
          __ddiv_rn(__dmul_rn(to, steps), static_cast<double>(columns - 1)));
    }
    case kConstant:
      return static_cast<long long>(from);
    case kNormal:
      if constexpr (kSame<element, signed char>) {  // the mean of two random codes
        return static_cast<long long>((bits >> 56) + (bits >> 48 & 0xff)) / 2 - 128;
      }
      return small_integer(bits, false);
    default:
      return small_integer(bits, kind == kSigns);
  }
}

// Returns an element of a floating type from a continuous distribution.
__device__ float real(int kind, double from, double to, unsigned long long bits) {
  if (kind == kConstant) return static_cast<float>(from);
  if (kind == kUniform) {
    return static_cast<float>(
        __dadd_rn(from, __dmul_rn(to - from, static_cast<double>(bits >> 40) * 0x1p-24)));
  }
  const float u = (static_cast<float>(bits >> 40) + 1) * 0x1p-24f;  // (0, 1]; Box-Muller
  const float v = static_cast<float>(bits & 0xffffff) * 0x1p-24f;
  return sqrtf(-2 * logf(u)) * cospif(2 * v);
}

// Numbers that may exceed 32 bits are passed as doubles, which are exact up to 2^53.
extern "C" __global__ void kernwright_draw(element* to_array, LAYOUT_PARAMETERS, double elements,
                                           double row_columns, double from, double to, int seed_low,
                                           int seed_high, int kind) {
  const long long count = static_cast<long long>(elements);
  const long long columns = static_cast<long long>(row_columns);
  const Layout layout(LAYOUT_ARGUMENTS);
  const unsigned long long seed = static_cast<unsigned long long>(static_cast<unsigned>(seed_high))
                                      << 32 |
                                  static_cast<unsigned>(seed_low);
  const bool in_rows = kind == kPermutation || kind == kOffsets;
  for (long long i = first_index(); i < count; i += stride()) {
    const unsigned long long bits = hash_at(seed, static_cast<unsigned long long>(i));
    element& place = to_array[layout.place(i)];
    if constexpr (kInteger<element>) {
      const long long row_index = in_rows ? i / columns : 0;
      const long long column = in_rows ? i % columns : i;
      place = whole<element>(integer(kind, from, to, seed, bits, row_index, column, columns));
    } else if (kind == kSmallIntegers || kind == kSigns) {
      place = whole<element>(small_integer(bits, kind == kSigns));
    } else {
      place = Rounded<element>::of(real(kind, from, to, bits));
    }
  }
}

constexpr unsigned char kGapByte = 0xFF;  // as in data_ops.h

// `span` is the number of elements from the first to the last, with the gaps between entries.
extern "C" __global__ void kernwright_fill_gaps(element* to, LAYOUT_PARAMETERS, double span) {
  const Layout layout(LAYOUT_ARGUMENTS);
  for (long long i = first_index(); i < static_cast<long long>(span); i += stride()) {
    if (layout.element_at(i) >= 0) continue;
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

// Limits x to the range. NaN stays NaN.
__device__ double limited(double x, double range_end) {
  return x > range_end ? range_end : x < -range_end ? -range_end : x;
}

extern "C" __global__ void kernwright_compare(const element* actual,
                                              const kernwright::reference_t<element>* reference,
                                              const float* magnitude, Finding* finding,
                                              LAYOUT_PARAMETERS, double span,
                                              double accumulate_unit, double output_unit,
                                              double floor, double range_end, int exact, int nan,
                                              int infinite) {
  const Layout layout(LAYOUT_ARGUMENTS);
  double worst = 0;
  unsigned long long mismatches = 0;
  unsigned long long first = 0;
  for (long long place = first_index(); place < static_cast<long long>(span); place += stride()) {
    const long long i = layout.element_at(place);
    if (i < 0) {
      if (is_gap(actual + place)) continue;
      ++mismatches;
      if (first == 0) first = ~static_cast<unsigned long long>(place);
      continue;
    }
    if constexpr (kWide) {
      if (is_met(actual[place], reference[i])) continue;
      worst = 1e30;
      ++mismatches;
      if (first == 0) first = ~static_cast<unsigned long long>(place);
      continue;
    }
    double r = static_cast<double>(reference[i]);
    const double x = value_at(actual + place);
    if (nan != 0 && r != r) {
      const double expected = widen(Rounded<element>::of(static_cast<float>(reference[i])));
      if (x == expected || (x != x && expected != expected)) continue;
      worst = 1e30;
      ++mismatches;
      if (first == 0) first = ~static_cast<unsigned long long>(place);
      continue;
    }
    if (infinite != 0 && isinf(r)) {
      if (x == r) continue;
      worst = 1e30;
      ++mismatches;
      if (first == 0) first = ~static_cast<unsigned long long>(place);
      continue;
    }
    double bound = 0;
    if (exact) r = widen(Rounded<element>::of(static_cast<float>(reference[i])));
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

// Hashes a region by the words of 8 bytes that overlap it, of which only its own bytes count.
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

// Hashes eight regions, so that the guards and inputs of a check take two launches. The address of
// an unused region is 0.
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
