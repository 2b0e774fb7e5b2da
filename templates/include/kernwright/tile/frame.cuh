#pragma once
// The frame of kernels whose warps have roles (sm_90): the start of their shared memory, the number
// of a warp, registers that move from the producer to the consumers, and tiles by a counter.

#include <kernwright/ptx/stmatrix.cuh>
#include <kernwright/ptx/warp_roles.cuh>
#include <kernwright/tile/pipeline.cuh>

namespace kernwright {

// Returns the first shared address of `memory` that is a multiple of 1024, which the 128-byte
// swizzle needs.
__device__ __forceinline__ unsigned aligned_shared(const unsigned char* memory) {
  return (static_cast<unsigned>(__cvta_generic_to_shared(memory)) + 1023) & ~1023u;
}

// Return the number of this warp in the block, of its warpgroup in the block, and of the warp in
// its warpgroup. The compiler does not know by itself that they are the same in all lanes.
__device__ __forceinline__ int warp_number() { return __shfl_sync(~0u, threadIdx.x / 32, 0); }
__device__ __forceinline__ int warpgroup_number() { return __shfl_sync(~0u, threadIdx.x / 128, 0); }
__device__ __forceinline__ int warp_in_group() { return __shfl_sync(~0u, threadIdx.x / 32 % 4, 0); }

// The registers of a thread of the producer warpgroup and of a consumer; 0 leaves them as they are.
struct RegisterSplit {
  int producer, consumer;
};

// Returns the split of a block with these consumers, of which a multiprocessor has `blocks`. `wide`
// accumulators need more registers than 232, and a producer that copies `scales` more than 40.
__device__ constexpr RegisterSplit register_split(int consumers, int blocks, bool wide,
                                                  bool scales) {
  if (consumers == 1 && blocks == 1) return {0, 0};
  if (consumers == 1) return {40, 216};
  if (consumers == 3) return {32, 160};
  if (consumers == 4) return {24, 112};
  return scales ? RegisterSplit{56, 224} : wide ? RegisterSplit{24, 240} : RegisterSplit{40, 232};
}

// Returns whether a block can have such a split. It is launched with the most registers that all
// its warpgroups can have, a multiple of 8 each. A warpgroup that claims more than are left waits
// for ever.
__device__ constexpr bool can_be_claimed(RegisterSplit split, int consumers, int blocks) {
  const int launched = 65536 / (128 * (consumers + 1) * blocks) / 8 * 8;
  return split.producer + consumers * split.consumer <= (consumers + 1) * launched;
}

// Tiles by a counter that all blocks share; a block begins with tile blockIdx.x. One warp takes
// numbers from the counter and publishes `Words` words for each tile, and the other warps read
// them, in this order.
template <int Words>
class TileQueue {
 public:
  static constexpr int kBytes = Pipeline<2>::kBytes + 2 * 4 * Words;

  __device__ __forceinline__ explicit TileQueue(unsigned address)
      : ring_(address), words_(address + Pipeline<2>::kBytes) {}

  // Initialises the barriers; `readers` is the number of warps that read.
  __device__ __forceinline__ void init(int readers) const { ring_.init(readers); }

  // Returns the number of the block's next tile. Run by one thread.
  static __device__ __forceinline__ int next_number(int* counters) {
    return atomicAdd(counters, 1) + gridDim.x;
  }

  // Publishes a tile. Run by one thread; then its warp calls advance().
  __device__ __forceinline__ void publish(const int (&words)[Words]) const {
    ring_.producer_wait();
#pragma unroll
    for (int i = 0; i < Words; ++i) store_number(words_of_stage() + 4 * i, words[i]);
    mbarrier_arrive(ring_.full());
  }
  __device__ __forceinline__ void advance() { ring_.advance(); }

  // The words of a tile.
  struct Tile {
    unsigned address;
    __device__ __forceinline__ int operator[](int i) const { return load_number(address + 4 * i); }
  };
  // Returns read(tile) for the next tile. Run by a whole warp.
  template <typename Read>
  __device__ __forceinline__ auto take(const Read& read) {
    ring_.consumer_wait();
    const auto tile = read(Tile{words_of_stage()});
    __syncwarp();
    ring_.consumer_release(ring_.stage());
    ring_.advance();
    return tile;
  }

  // Leaves both counters at zero for the next launch, in the block that ends last. Run by one
  // thread of each block after its last tile.
  static __device__ __forceinline__ void finish(int* counters) {
    if (atomicAdd(counters + 1, 1) == gridDim.x - 1) {
      counters[0] = 0;
      counters[1] = 0;
    }
  }

 private:
  __device__ __forceinline__ unsigned words_of_stage() const {
    return words_ + 4 * Words * ring_.stage();
  }

  Pipeline<2> ring_;
  unsigned words_;
};

}  // namespace kernwright
