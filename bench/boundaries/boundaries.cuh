// What the kernels of bench/boundaries share: what a step passes on, the weights that it reads, and
// spins that end.
#pragma once

using u32 = unsigned;
using u64 = unsigned long long;

#if __CUDA_ARCH__ >= 900
#define BOUNDARIES_HOPPER 1
#else
#define BOUNDARIES_HOPPER 0
#endif

constexpr u32 kSlotBytes = 16384;              // of the ring, and the unit of weights
constexpr u32 kSlotVectors = kSlotBytes / 16;  // of 16 bytes
constexpr u32 kHeldVectors = 8;                // that a thread holds in registers
constexpr u32 kLongestDelayNs = 20000;

/// Whom the words of a step go to. The numbers are those of `Reach` on the host.
enum Reach : u32 { kNobody, kEverybody, kNeighbours };

__device__ __forceinline__ u64 now_ns() {
  u64 now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

__device__ __forceinline__ u32 load_relaxed(const u32* from) {
  u32 value;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}

__device__ __forceinline__ u32 load_acquire(const u32* from) {
  u32 value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}

__device__ __forceinline__ void store_release(u32* to, u32 value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

/// Ends a spin after two seconds. Then `*fault` names the place, and all later spins end soon, so
/// that the kernel does; its result is void.
struct Patience {
  static constexpr u64 kLongestNs = 2000000000;

  u32* fault;
  u32 place;
  u32 every = 1024;  // polls between two looks at the clock
  u32 polls = 0;
  u64 begin = 0;

  /// After a poll in vain: whether to give up.
  __device__ __forceinline__ bool is_over() {
    if (++polls % every != 0) return false;
    if (load_relaxed(fault) != 0) return true;
    const u64 now = now_ns();
    if (begin == 0) begin = now;
    if (now - begin < kLongestNs) return false;
    atomicCAS(fault, 0u, place);
    return true;
  }
};

/// The word number `word` of what step number `step` passes on, where `sum` is the sum of all that
/// its block has read. The host computes the same.
__device__ __forceinline__ u32 mixed(u32 sum, u32 word, u32 step) {
  u32 bits = sum + word * 0x9e3779b9u + step * 0xc2b2ae35u;
  bits = (bits ^ (bits >> 15)) * 0x9e3779b1u;
  return bits ^ (bits >> 13);
}

/// The words that a block writes.
struct Share {
  u32 first;
  u32 end;
};

__device__ __forceinline__ Share share_of(u32 block, u32 words) {
  const auto bound = [&](u32 i) {
    return static_cast<u32>(static_cast<u64>(words) * i / gridDim.x);
  };
  return {bound(block), bound(block + 1)};
}

__device__ __forceinline__ u32 left_of(u32 block) { return block == 0 ? gridDim.x - 1 : block - 1; }
__device__ __forceinline__ u32 right_of(u32 block) {
  return block + 1 == gridDim.x ? 0 : block + 1;
}

/// Sleeps for a time that block, step and seed decide; not at all for seed 0.
__device__ __forceinline__ void delay(u32 seed, u32 step) {
  if (seed != 0) __nanosleep(mixed(seed, blockIdx.x, step) % kLongestDelayNs);
}

__device__ __forceinline__ u32 sum_of(uint4 v) { return v.x + v.y + v.z + v.w; }

/// The first `threads` threads of the block meet.
__device__ __forceinline__ void meet(u32 threads) {
  asm volatile("bar.sync 1, %0;" ::"r"(threads) : "memory");
}

/// The sum over the first `threads` threads of the block. `partial` is free again when the threads
/// have met once more.
__device__ __forceinline__ u32 block_sum(u32 sum, u32* partial, u32 threads) {
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
  meet(threads);
  u32 all = 0;
  for (u32 warp = 0; warp < threads / 32; ++warp) all += partial[warp];
  return all;
}

/// What the threads hold of a block's weights of one step: the vectors from `first` on.
struct HeldWeights {
  uint4 vectors[kHeldVectors];

  __device__ __forceinline__ void load(const uint4* part, u32 first, u32 count, u32 threads) {
#pragma unroll
    for (u32 i = 0; i < kHeldVectors; ++i) {
      const u32 at = first + i * threads + threadIdx.x;
      vectors[i] = make_uint4(0, 0, 0, 0);
      if (at < count) {
        asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(vectors[i].x), "=r"(vectors[i].y), "=r"(vectors[i].z),
                       "=r"(vectors[i].w)
                     : "l"(part + at));
      }
    }
  }
  __device__ __forceinline__ u32 sum() const {
    u32 all = 0;
#pragma unroll
    for (u32 i = 0; i < kHeldVectors; ++i) all += sum_of(vectors[i]);
    return all;
  }
};

/// This thread's part of the sum of the vectors from `first` to `count`.
__device__ __forceinline__ u32 sum_weights(const uint4* part, u32 first, u32 count, u32 threads) {
  u32 sum = 0;
  for (; first < count; first += kHeldVectors * threads) {
    HeldWeights held;
    held.load(part, first, count, threads);
    sum += held.sum();
  }
  return sum;
}

__device__ __forceinline__ u32 shared_address(const void* pointer) {
  return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

#if BOUNDARIES_HOPPER

__device__ __forceinline__ void start_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
__device__ __forceinline__ void await_previous() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

__device__ __forceinline__ void init_barrier(u64* barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(arrivals)
               : "memory");
}
/// Bulk copies of this thread come after its barriers' initialisation.
__device__ __forceinline__ void fence_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void arrive(u64* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
               : "memory");
}
__device__ __forceinline__ void expect_bytes(u64* barrier, u32 bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}
__device__ __forceinline__ void copy_slot(void* to, const void* from, u64* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(to)),
      "l"(from), "r"(kSlotBytes), "r"(shared_address(barrier))
      : "memory");
}
__device__ __forceinline__ void prefetch_slot(const void* from) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(kSlotBytes)
               : "memory");
}
/// False where it gave up.
__device__ __forceinline__ bool await_phase(u64* barrier, u32 parity, u32* fault, u32 place) {
  Patience patience{fault, place, 64};
  for (;;) {
    u32 done;
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, "
        "p; }"
        : "=r"(done)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
    if (done) return true;
    if (patience.is_over()) return false;
  }
}

#endif
