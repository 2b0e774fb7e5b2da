// A step of a chain as a kernel of its own: it reads what the step before passed on and its part of
// the weights, and writes its share of the next words.
#include <boundaries/boundaries.cuh>

enum class Trigger { none, start, middle };           // when the next kernel may start
enum class Early { nothing, l2, registers, shared };  // where weights go before the wait

constexpr u32 kHeldSlots = 4;  // that come to shared memory early

/// This thread's part of the sum of what the block reads of `in`.
__device__ __forceinline__ u32 sum_words(const u32* in, u32 words, u32 reach) {
  u32 sum = 0;
  if (reach == kEverybody) {
    const uint4* vectors = reinterpret_cast<const uint4*>(in);
    for (u32 i = threadIdx.x; i < words / 4; i += blockDim.x) sum += sum_of(__ldcg(vectors + i));
  } else if (reach == kNeighbours) {
    const Share left = share_of(left_of(blockIdx.x), words);
    const Share right = share_of(right_of(blockIdx.x), words);
    for (u32 i = left.first + threadIdx.x; i < left.end; i += blockDim.x) sum += __ldcg(in + i);
    for (u32 i = right.first + threadIdx.x; i < right.end; i += blockDim.x) sum += __ldcg(in + i);
  }
  return sum;
}

template <Trigger TRIGGER, Early EARLY>
__device__ __forceinline__ void run_step(const u32* in, u32* out, const uint4* weights, u32* fault,
                                         u32 words, u32 reach, u32 slots, u32 step, u32 delays) {
  __shared__ u32 partial[32];
  const u32 count = slots * kSlotVectors;
  const uint4* part = weights + static_cast<u64>(blockIdx.x) * count;
  u32 first = 0;  // the first vector that does not come to shared memory
  HeldWeights held;
#if BOUNDARIES_HOPPER
  extern __shared__ __align__(128) uint4 memory[];
  __shared__ u64 arrived;
  const u32 held_slots = slots < kHeldSlots ? slots : kHeldSlots;
  if constexpr (TRIGGER == Trigger::start) start_dependents();
  if constexpr (EARLY == Early::l2) {
    if (threadIdx.x < slots) prefetch_slot(part + threadIdx.x * kSlotVectors);
  } else if constexpr (EARLY == Early::registers) {
    held.load(part, 0, count, blockDim.x);
  } else if constexpr (EARLY == Early::shared) {
    if (threadIdx.x == 0) {
      init_barrier(&arrived, 1);
      fence_barriers();
      expect_bytes(&arrived, held_slots * kSlotBytes);
      for (u32 i = 0; i < held_slots; ++i) {
        copy_slot(memory + i * kSlotVectors, part + i * kSlotVectors, &arrived);
      }
    }
    first = held_slots * kSlotVectors;
    __syncthreads();
  }
  if constexpr (TRIGGER != Trigger::none) await_previous();
#endif
  // The weights are on their way before the words are waited for.
  if constexpr (EARLY != Early::registers) held.load(part, first, count, blockDim.x);
  u32 sum = sum_words(in, words, reach) + held.sum();
  sum += sum_weights(part, first + kHeldVectors * blockDim.x, count, blockDim.x);
#if BOUNDARIES_HOPPER
  if constexpr (EARLY == Early::shared) {
    if (await_phase(&arrived, 0, fault, step + 1)) {
      for (u32 i = threadIdx.x; i < first; i += blockDim.x) sum += sum_of(memory[i]);
    }
  }
  if constexpr (TRIGGER == Trigger::middle) start_dependents();
#endif
  if (words == 0) return;
  const u32 all = block_sum(sum, partial, blockDim.x);
  delay(delays, step);
  const Share mine = share_of(blockIdx.x, words);
  for (u32 i = mine.first + threadIdx.x; i < mine.end; i += blockDim.x) {
    out[i] = mixed(all, i, step);
  }
}

#define STEP(name, trigger, early)                                                               \
  extern "C" __global__ void __launch_bounds__(512)                                              \
      name(const u32* in, u32* out, const uint4* weights, u32* fault, u32 words, u32 reach,      \
           u32 slots, u32 step, u32 delays) {                                                    \
    run_step<Trigger::trigger, Early::early>(in, out, weights, fault, words, reach, slots, step, \
                                             delays);                                            \
  }

STEP(step_none_nothing, none, nothing)
#if BOUNDARIES_HOPPER
STEP(step_start_nothing, start, nothing)
STEP(step_start_l2, start, l2)
STEP(step_start_registers, start, registers)
STEP(step_start_shared, start, shared)
STEP(step_middle_nothing, middle, nothing)
STEP(step_middle_l2, middle, l2)
STEP(step_middle_registers, middle, registers)
STEP(step_middle_shared, middle, shared)
#endif
