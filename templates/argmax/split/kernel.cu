#include <kernwright/config.cuh>
#include <kernwright/math/reduce.cuh>
#include <kernwright/math/vector.cuh>
#include <kernwright/ptx/programmatic.cuh>

using namespace kernwright;
using namespace kernwright::config;

constexpr int kLanes = VECTOR_BYTES / sizeof(dtype_t);

// A value and its column as one number, which is larger for a larger value and, of equal values,
// for a lower column. No value has the number 0.
struct Largest {
  using Value = unsigned long long;
  static __device__ __forceinline__ Value identity() { return 0; }
  static __device__ __forceinline__ Value combine(Value a, Value b) { return a > b ? a : b; }

  static __device__ __forceinline__ Value of(float value, int column) {
    const unsigned bits = __float_as_uint(value == 0 ? 0.0f : value);  // -0 equals 0
    unsigned order = bits >> 31 ? ~bits : bits | 0x80000000u;
    if (value != value) order = 0xffffffffu;
    return static_cast<Value>(order) << 32 | ~static_cast<unsigned>(column);
  }
  static __device__ __forceinline__ int column(Value x) {
    return static_cast<int>(~static_cast<unsigned>(x));
  }
};

// Finds the index of each row's largest value. SPLIT blocks share a row and take tiles of THREADS
// * VECTORS vectors in turn. A block that is not alone writes its largest value to `largest`; the
// last one to finish has the row's largest value, and writes zeros back. The larger of two numbers
// does not depend on which came first.
extern "C" __global__ void __launch_bounds__(THREADS) argmax_split(KW_PARAMETERS(argmax_split)) {
  __shared__ Largest::Value of_warps[THREADS / 32];
  release_next_kernel();
  const int row = static_cast<int>(blockIdx.x) / SPLIT;
  const int part = static_cast<int>(blockIdx.x) % SPLIT;
  const dtype_t* const from = x + static_cast<long long>(row) * columns;
  await_previous_kernel();

  // A thread sees its columns in rising order. If it sees only minus infinity, its column 0 counts
  // only if the whole row is minus infinity.
  float most = minus_infinity();
  int column = 0;
  for (int first = part * TILE + static_cast<int>(threadIdx.x); first < ROW_VECTORS;
       first += SPLIT * TILE) {
    Packed<VECTOR_BYTES> read[VECTORS];
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
      const int at = first + i * THREADS;
      if (at < ROW_VECTORS) read[i] = load<Load::read_only, VECTOR_BYTES>(from + at * kLanes);
    }
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
      const int at = first + i * THREADS;
      if (at >= ROW_VECTORS) continue;
#pragma unroll
      for (int j = 0; j < kLanes; ++j) {
        const float value = lane<dtype_t>(read[i], j);
        if (!(value <= most) && most == most) {  // larger, or the first NaN
          most = value;
          column = at * kLanes + j;
        }
      }
    }
  }

  Largest::Value all = combine_warps<Largest, THREADS / 32, 1>(
      warp_reduce<Largest, 32>(Largest::of(most, column)), of_warps);
  if (threadIdx.x > 0) return;
  if (SPLIT > 1) {
    atomicMax(largest + row, all);
    __threadfence();
    // Counts to SPLIT - 1 and then from 0 again.
    if (atomicInc(finished + row, SPLIT - 1) < SPLIT - 1) return;
    __threadfence();
    all = atomicExch(largest + row, 0ull);
  }
  index[row] = Largest::column(all);
}
