#include <kernwright/config.cuh>

using namespace kernwright;
using namespace kernwright::config;

// Returns whether a, of column i, comes before b, of column j: NaN before numbers, large before
// small ones, low columns before high ones.
__device__ bool comes_before(float a, long long i, float b, long long j) {
  if (isnan(a) != isnan(b)) return isnan(a);
  return isnan(a) || a == b ? i < j : a > b;
}

// Finds the index of a row's largest value in each block. Each thread takes every 256th column, and
// the first one compares their results.
extern "C" __global__ void argmax_reference(KW_PARAMETERS(argmax_reference)) {
  __shared__ long long found[256];
  for (long long r = blockIdx.x; r < rows; r += gridDim.x) {
    const auto at = [&](long long c) { return to_float(x[r * columns + c]); };
    long long best = threadIdx.x;
    for (long long c = threadIdx.x; c < columns; c += 256) {
      if (comes_before(at(c), c, at(best), best)) best = c;
    }
    found[threadIdx.x] = best;
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int i = 1; i < 256 && i < columns; ++i) {
        if (comes_before(at(found[i]), found[i], at(best), best)) best = found[i];
      }
      index_reference[r] = best;
    }
    __syncthreads();
  }
}
