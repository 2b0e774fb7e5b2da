#include <kernwright/config.cuh>
#include <kernwright/math/reduce.cuh>
#include <kernwright/math/vector.cuh>
#include <kernwright/ptx/programmatic.cuh>

using namespace kernwright;
using namespace kernwright::config;

constexpr int kLanes = 16 / sizeof(dtype_t);
constexpr int kFinishThreads = 1024;

using Reduction = Chosen<kind == kind_max, Max, Sum>::Type;

__device__ __forceinline__ float include(float so_far, float v) {
  return Reduction::combine(so_far, kind == kind_sum_squares ? v * v : v);
}

// Returns the result from the combination of `count` elements.
__device__ __forceinline__ out_t result(float all, long long count) {
  return from_float<out_t>(kind == kind_mean ? all / static_cast<float>(count) : all);
}

// Reads `count` elements in tiles of THREADS * VECTORS vectors, which the blocks take in turn. Each
// of a thread's VECTORS loads has a sum of its own. If the grid is one cluster, the first block
// combines the values of all blocks in the order of their ranks, and writes y. In a larger grid
// each block writes its value to `parts`.
extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    reduce_tensor_parts(KW_PARAMETERS(reduce_tensor_parts)) {
  __shared__ float warp_parts[THREADS / 32];
  __shared__ float block_parts[CLUSTER];         // used by the first block
  __shared__ unsigned long long received_parts;  // barrier: all values have arrived
  const unsigned received = shared_address(&received_parts);
  release_next_kernel();
  if constexpr (CLUSTER > 1) {
    if (blockIdx.x == 0 && threadIdx.x == 0) {
      mbarrier_init(received, 1);
      mbarrier_init_fence();
      mbarrier_arrive_expect(received, CLUSTER * sizeof(float));
    }
    cluster_arrive_relaxed();
    cluster_wait();  // before the previous kernel has ended, so that an early start hides it
  }
  await_previous_kernel();
  const long long vectors = count / kLanes;
  float sum[VECTORS];
#pragma unroll
  for (int i = 0; i < VECTORS; ++i) sum[i] = Reduction::identity();
  const long long stride = static_cast<long long>(gridDim.x) * THREADS * VECTORS;
  for (long long first = static_cast<long long>(blockIdx.x) * THREADS * VECTORS + threadIdx.x;
       first < vectors; first += stride) {
    Packed<16> read[VECTORS];
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
      const long long at = first + i * THREADS;
      if (at < vectors) read[i] = load<Load::read_only, 16>(x + at * kLanes);
    }
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
      if (first + i * THREADS >= vectors) continue;
#pragma unroll
      for (int j = 0; j < kLanes; ++j) sum[i] = include(sum[i], lane<dtype_t>(read[i], j));
    }
  }
  // after the last whole vector
  const long long tail = vectors * kLanes + threadIdx.x;
  if (blockIdx.x == 0 && tail < count) sum[0] = include(sum[0], to_float(x[tail]));
#pragma unroll
  for (int i = 1; i < VECTORS; ++i) sum[0] = Reduction::combine(sum[0], sum[i]);
  float all =
      combine_warps<Reduction, THREADS / 32, 1>(warp_reduce<Reduction, 32>(sum[0]), warp_parts);
  if constexpr (CLUSTER > 1) {
    if (threadIdx.x == 0) send_to_rank(block_parts + blockIdx.x, all, 0, received);
    if (blockIdx.x > 0 || threadIdx.x >= 32) return;
    mbarrier_wait(received, 0);
    all = warp_reduce<Reduction, CLUSTER>(block_parts[threadIdx.x % CLUSTER]);
  }
  if (threadIdx.x > 0) return;
  if (CLUSTER > 1 || gridDim.x == 1) {
    y[0] = result(all, count);
  } else {
    parts[blockIdx.x] = all;
  }
}

// Combines the blocks' values in their order, in one block.
extern "C" __global__ void __launch_bounds__(kFinishThreads)
    reduce_tensor_finish(KW_PARAMETERS(reduce_tensor_finish)) {
  __shared__ float warp_parts[kFinishThreads / 32];
  release_next_kernel();
  await_previous_kernel();
  float sum = Reduction::identity();
  for (int i = threadIdx.x; i < blocks; i += kFinishThreads) {
    sum = Reduction::combine(sum, parts[i]);
  }
  const float all =
      combine_warps<Reduction, kFinishThreads / 32, 1>(warp_reduce<Reduction, 32>(sum), warp_parts);
  if (threadIdx.x == 0) y[0] = result(all, count);
}
