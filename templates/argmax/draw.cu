#include <kernwright/attention/drawing.cuh>
#include <kernwright/math/types.cuh>

using namespace kernwright;
using namespace kernwright::config;

// The columns at which a row has the values that it tests.
struct Places {
  __device__ Places(unsigned long long seed, long long row, long long count) {
    const unsigned long long stream = hash_at(seed, static_cast<unsigned long long>(row));
    one = static_cast<long long>(hash_at(stream, 0) % static_cast<unsigned long long>(count));
    other = static_cast<long long>(hash_at(stream, 1) % static_cast<unsigned long long>(count));
  }
  __device__ bool has(long long c) const { return c == one || c == other; }

  long long one, other;
};

// Returns the value that decides a tie, in rows of seven kinds.
__device__ float tie(long long kind, unsigned long long random, long long c, long long count,
                     const Places& places) {
  const float any = normal(random);
  switch (kind) {
    case 0:
      return static_cast<float>(random % 7) - 3;  // equal ones everywhere
    case 1:
      return c == count - 1 ? 100.0f : any;  // the last
    case 2:
      return c == 0 || places.has(c) ? 100.0f : any;  // the first of three
    case 3:
      return -INFINITY;  // all
    case 4:
      return random % 5 > 0 ? -fabsf(any) : 0 * sign(random >> 8);  // zeros of both signs
    case 5:
      return places.has(c) ? 50.0f : any;  // the lower one of two
    default:
      return places.has(c) ? -60000.0f : -INFINITY;  // a number
  }
}

// Returns an element of rows of five kinds with a NaN.
__device__ float with_nan(long long kind, unsigned long long random, long long c, long long count,
                          const Places& places) {
  const float any = normal(random);
  const float none = random >> 8 & 1 ? NAN : __uint_as_float(0xffc00000u);  // signs are ignored
  switch (kind) {
    case 0:
      return random % 101 == 0 || c == count - 1 ? none : any;
    case 1:
      return c == count - 1 ? none : any;
    case 2:
      return c == 0 || places.has(c) ? none : any;
    case 3:
      return places.has(c) ? none : random % 3 == 0 ? INFINITY : any;
    default:
      return none;
  }
}

template <typename Value>
__device__ void draw(dtype_t* x, long long row_count, long long column_count, const Value& value) {
  for (long long r = blockIdx.x / 64; r < row_count; r += gridDim.x / 64) {
    for (long long c = blockIdx.x % 64 * blockDim.x + threadIdx.x; c < column_count;
         c += 64 * blockDim.x) {
      x[r * column_count + c] = from_float<dtype_t>(value(r, c));
    }
  }
}

__device__ unsigned long long bits_at(long long seed, long long place) {
  return hash_at(hash_at(static_cast<unsigned long long>(seed), 2),
                 static_cast<unsigned long long>(place));
}

extern "C" __global__ void argmax_timing(KW_PARAMETERS(argmax_timing)) {
  draw(x, rows, columns,
       [&](long long r, long long c) { return normal(bits_at(seed, r * columns + c)); });
}

extern "C" __global__ void argmax_exact(KW_PARAMETERS(argmax_exact)) {
  draw(x, rows, columns, [&](long long r, long long c) {
    const Places places(static_cast<unsigned long long>(seed), r, columns);
    return tie((r + seed) % 7, bits_at(seed, r * columns + c), c, columns, places);
  });
}

extern "C" __global__ void argmax_nan(KW_PARAMETERS(argmax_nan)) {
  draw(x, rows, columns, [&](long long r, long long c) {
    const Places places(static_cast<unsigned long long>(seed), r, columns);
    return with_nan((r + seed) % 5, bits_at(seed, r * columns + c), c, columns, places);
  });
}
