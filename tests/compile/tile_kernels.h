#pragma once

namespace kernwright {

/// Kernels that use the headers without an operation, `tile/` and the boxes of three and more
/// dimensions of `tma.cuh`, as kernels of other operations would. They do not include config.cuh.
inline constexpr const char* kTileKernels = R"(
#include <kernwright/ptx/mbarrier.cuh>
#include <kernwright/tile/pipeline.cuh>
#include <kernwright/tile/tile_store.cuh>
#include <kernwright/tile/wgmma_tile.cuh>
#include <kernwright/ptx/tma.cuh>

namespace {

using namespace kernwright;

__device__ unsigned aligned_memory() {
  extern __shared__ unsigned char memory[];
  return ((unsigned)__cvta_generic_to_shared(memory) + 1023) & ~1023u;
}

// Run by one thread: copies a box from one place to another through shared memory.
template <int Rank>
__device__ void copy_box(const TensorMap& map_from, const TensorMap& map_to,
                         const int (&from)[Rank], const int (&to)[Rank], unsigned bytes) {
  const unsigned box = aligned_memory(), barrier = box + bytes;
  mbarrier_init(barrier, 1);
  mbarrier_init_fence();
  mbarrier_arrive_expect(barrier, bytes);
  tma_load(box, map_from, from, barrier);
  mbarrier_wait(barrier, 0);
  tma_store_fence();
  tma_store(map_to, box, to);
  tma_store_wait_read<0>();
}

// The products of attention without its softmax, for head blockIdx.x: o = round(q * k^T) * v over `tiles`
// tiles of 64 keys. All are [64, 64] of 16 bits. v is not transposed before, so it is an MN-major operand.
constexpr int kTile = 64, kBytes = kTile * kSwizzleBytes, kStages = 2;
using KeysAndValues = Pipeline<kStages>;

__device__ void feed(const TensorMap& map_k, const TensorMap& map_v, KeysAndValues pipeline,
                     unsigned stages, int tiles) {
  for (int tile = 0; tile < tiles; ++tile) {
    pipeline.producer_acquire(2 * kBytes);
    const unsigned stage = stages + pipeline.stage() * 2 * kBytes;
    const int at[3] = {0, tile * kTile, (int)blockIdx.x};
    tma_load(stage, map_k, at, pipeline.full());
    tma_load(stage + kBytes, map_v, at, pipeline.full());
    pipeline.advance();
  }
}

__device__ void attend(float (&o)[kTile / 2], KeysAndValues pipeline, unsigned q, unsigned stages,
                       int tiles) {
  const WgmmaOperand<Major::k, kTile, kTile> queries(q);
  for (int tile = 0; tile < tiles; ++tile) {
    pipeline.consumer_wait();
    const unsigned stage = stages + pipeline.stage() * 2 * kBytes;
    const WgmmaOperand<Major::k, kTile, kTile> keys(stage);
    const WgmmaOperand<Major::mn, kTile, kTile> values(stage + kBytes);
    float s[1][kTile / 2];
    wgmma_pin(s[0]);
    wgmma_fence();
    multiply<bf16>(s, queries, 0, keys, 0, 4, false);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_pin(s[0]);
    RegisterOperand<kTile / 16> p;
    round_operand<bf16>(s[0], p);
    wgmma_pin(o);
    pin_operand<kTile / 16>(p);
    wgmma_fence();
    multiply<bf16, kTile / 2, kTile / 16>(o, p, values, 0, tile != 0);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_pin(o);
    pipeline.consumer_release(pipeline.stage());
    pipeline.advance();
  }
}

}  // namespace

extern "C" __global__ void copy_3(const __grid_constant__ TensorMap from,
                                  const __grid_constant__ TensorMap to, int x, int y, int z,
                                  int bytes) {
  const int at[3] = {x, y, z}, origin[3] = {0, 0, 0};
  if (threadIdx.x == 0) copy_box(from, to, at, origin, bytes);
}

extern "C" __global__ void copy_4(const __grid_constant__ TensorMap from,
                                  const __grid_constant__ TensorMap to, int x, int y, int z, int u,
                                  int bytes) {
  const int at[4] = {x, y, z, u}, origin[4] = {0, 0, 0, 0};
  if (threadIdx.x == 0) copy_box(from, to, at, origin, bytes);
}

extern "C" __global__ void copy_5(const __grid_constant__ TensorMap from,
                                  const __grid_constant__ TensorMap to, int x, int y, int z, int u,
                                  int v, int bytes) {
  const int at[5] = {x, y, z, u, v}, origin[5] = {0, 0, 0, 0, 0};
  if (threadIdx.x == 0) copy_box(from, to, at, origin, bytes);
}

// A warpgroup that multiplies and a warp that feeds it. `stored` gets the result by TMA, `placed`
// element by element.
extern "C" __global__ void __launch_bounds__(160)
    two_products(const __grid_constant__ TensorMap map_q, const __grid_constant__ TensorMap map_k,
                 const __grid_constant__ TensorMap map_v,
                 const __grid_constant__ TensorMap map_stored, float* placed, int tiles) {
  const unsigned q = aligned_memory(), stages = q + kBytes;
  const unsigned slots = stages + kStages * 2 * kBytes;
  const unsigned barriers = slots + 4 * Staging<>::kBytes;
  const unsigned landed = barriers + KeysAndValues::kBytes;
  const KeysAndValues pipeline(barriers);
  if (threadIdx.x == 0) {
    pipeline.init(4);
    mbarrier_init(landed, 1);
    mbarrier_init_fence();
  }
  __syncthreads();
  if (threadIdx.x >= 128) {
    if (threadIdx.x == 128) {
      mbarrier_arrive_expect(landed, kBytes);
      const int at[3] = {0, 0, (int)blockIdx.x};
      tma_load(q, map_q, at, landed);
      feed(map_k, map_v, pipeline, stages, tiles);
    }
    return;
  }
  mbarrier_wait(landed, 0);
  float o[kTile / 2];
  attend(o, pipeline, q, stages, tiles);

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  Staging<> staging(slots + warp * Staging<>::kBytes);
#pragma unroll
  for (int chunk = 0; chunk < 2; ++chunk) {
    unsigned words[kChunkWords];
    round_chunk<float>(&o[chunk * kChunkColumns<float> / 2], words);
    const unsigned slot = staging.next();
    stage_chunk<float>(words, slot, lane);
    tma_store_fence();
    __syncwarp();
    const int at[3] = {chunk * kChunkColumns<float>, warp * kChunkRows, (int)blockIdx.x};
    if (lane == 0) tma_store(map_stored, slot, at);
  }
#pragma unroll
  for (int i = 0; i < kTile / 2; ++i) {
    const int row = warp * kChunkRows + accumulator_row() + register_row(i);
    const int column = accumulator_column() + register_column(i);
    placed[(blockIdx.x * kTile + row) * kTile + column] = o[i];
  }
  if (lane == 0) tma_store_wait_read<0>();
}
)";

}  // namespace kernwright
