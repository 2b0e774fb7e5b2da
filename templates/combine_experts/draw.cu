#include <kernwright/attention/drawing.cuh>
#include <kernwright/math/types.cuh>

using namespace kernwright;
using namespace kernwright::config;

enum Stream { kY = 2, kWeight, kShared, kResidual, kPlace };

// The places of pairs: rows in an order of their own, with some that have none. Where there are
// fewer rows than pairs some share a row.
struct Places {
  __device__ Places(long long seed, long long rows, int one_of)
      : numbers(static_cast<unsigned long long>(seed)), order(numbers, rows), one_of(one_of) {}

  __device__ int operator()(long long pair) const {
    const bool has_none = one_of > 0 && bits_at(kPlace, pair) % one_of == 0;
    return has_none ? -1 : static_cast<int>(order(pair));
  }
  __device__ unsigned long long bits_at(Stream stream, long long place) const {
    return hash_at(hash_at(numbers, stream), static_cast<unsigned long long>(place));
  }

  unsigned long long numbers;
  Order order;
  int one_of;
};

// Calls visit(i) for every place of a tensor that there is.
template <typename Visit>
__device__ void each(const void* tensor, long long count, const Visit& visit) {
  if (!tensor) return;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += static_cast<long long>(gridDim.x) * blockDim.x) {
    visit(i);
  }
}

// Fills the tensors that are not null, with `number` of random bits. Rows that no pair names are
// left out, and so are the weights of pairs without a row.
template <typename Number>
__device__ void draw(dtype_t* y, int* place, float* weights, dtype_t* shared, dtype_t* residual,
                     const Places& places, long long tokens, long long top, long long columns,
                     long long rows, const Number& number) {
  const long long pairs = tokens * top;
  const auto fill = [&](dtype_t* to, Stream stream) {
    each(to, tokens * columns,
         [&](long long i) { to[i] = from_float<dtype_t>(number(places.bits_at(stream, i))); });
  };
  each(place, pairs, [&](long long i) { place[i] = places(i); });
  each(weights, pairs, [&](long long i) {
    if (places(i) >= 0) weights[i] = number(places.bits_at(kWeight, i));
  });
  fill(shared, kShared);
  fill(residual, kResidual);
  each(y, pairs * columns, [&](long long i) {
    const long long row = places(i / columns), at = row * columns + i % columns;
    if (row >= 0) y[at] = from_float<dtype_t>(number(places.bits_at(kY, at)));
  });
}

__device__ float small_integer(unsigned long long random) {
  return static_cast<float>(random % 7) - 3;
}

extern "C" __global__ void combine_experts_timing(KW_PARAMETERS(combine_experts_timing)) {
  draw(y, place, weights, shared, residual, Places(seed, rows, 0), tokens, top, columns, rows,
       normal);
}

extern "C" __global__ void combine_experts_exact(KW_PARAMETERS(combine_experts_exact)) {
  draw(y, place, weights, shared, residual, Places(seed, rows, 5), tokens, top, columns, rows,
       small_integer);
}

extern "C" __global__ void combine_experts_nan(KW_PARAMETERS(combine_experts_nan)) {
  draw(y, place, weights, shared, residual, Places(seed, rows, 7), tokens, top, columns, rows,
       [](unsigned long long random) { return random % 61 == 0 ? NAN : normal(random); });
}
