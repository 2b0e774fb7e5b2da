#pragma once
// Results that share a scale, for references: in fp64, with magnitudes.

#include <kernwright/quantized/row_scale.cuh>

namespace kernwright {

// A result before it is rounded, and the sum of its absolute terms.
struct Term {
  double value;
  double magnitude;
};

// Returns x, limited to what Out holds if that saturates.
template <typename Out>
__device__ inline double saturated(double x) {
  if constexpr (sizeof(Out) > 1) return x;
  constexpr double kEnd = kLargestCode<Out>;
  return smaller(larger(x, kIsInt8<Out> ? -128.0 : -kEnd), kEnd);
}

// Returns the largest of the x of a block of 256 threads, to all of them.
__device__ inline double block_largest(double x) {
  __shared__ double parts[256];
  __syncthreads();
  parts[threadIdx.x] = x;
  __syncthreads();
  for (int half = 128; half > 0; half /= 2) {
    if (threadIdx.x < half)
      parts[threadIdx.x] = larger(parts[threadIdx.x], parts[threadIdx.x + half]);
    __syncthreads();
  }
  return parts[0];
}

// The results of a row, divided by scales: of `group` neighbours each, which a reference finds, or
// if that is 0 by `unit`. None of them is rounded to its type.
struct QuotientsReference {
  long long group;
  double unit;
  float scale_least;
  float* codes;  // [rows, columns]
  float* code_magnitudes;
  float* scales;  // [groups, rows]
  float* scale_magnitudes;

  // Writes the quotients and scales of a row by a block of 256 threads. term(i) is the Term of
  // element i of [rows, columns]. A scale is off by as much as its largest term, and so is each
  // quotient by it.
  template <typename Out, typename Terms>
  __device__ void write(const Terms& term, long long row, long long rows, long long columns) const {
    const long long first = row * columns;
    if (group == 0) {
      for (long long i = first + threadIdx.x; i < first + columns; i += 256) {
        const Term one = term(i);
        codes[i] = static_cast<float>(saturated<Out>(one.value / unit));
        code_magnitudes[i] = static_cast<float>(one.magnitude / unit);
      }
      return;
    }
    for (long long begin = 0; begin < columns; begin += group) {
      write_group<Out>(term, first + begin,
                       first + (begin + group < columns ? begin + group : columns),
                       begin / group * rows + row);
    }
  }

 private:
  template <typename Out, typename Terms>
  __device__ void write_group(const Terms& term, long long first, long long last,
                              long long place) const {
    double most = 0;
    double most_terms = 0;
    for (long long i = first + threadIdx.x; i < last; i += 256) {
      const Term one = term(i);
      most = larger(most, fabs(one.value));
      most_terms = larger(most_terms, one.magnitude);
    }
    const float scale = row_scale<Out>(static_cast<float>(block_largest(most)), scale_least);
    const float terms =
        larger(static_cast<float>(block_largest(most_terms)) / kLargestCode<Out>, scale);
    for (long long i = first + threadIdx.x; i < last; i += 256) {
      const Term one = term(i);
      const double code = one.value / scale;
      codes[i] = static_cast<float>(code);
      code_magnitudes[i] = static_cast<float>((one.magnitude + fabs(code) * terms) / scale);
    }
    if (threadIdx.x == 0) {
      scales[place] = scale;
      scale_magnitudes[place] = terms;
    }
  }
};

}  // namespace kernwright
