// All steps of a chain in one cooperative kernel. A step reads, computes and writes what a step of
// steps.cu does. Between two steps the blocks cross a boundary in one of six ways.
#include <boundaries/boundaries.cuh>

/// What a step waits for before it reads the words of the step before.
enum class Crossing {
  none,   // nothing
  add,    // all blocks: a fence and an atomic add whose result is used, a volatile spin
  red,    // all blocks: red.release, ld.acquire by one thread
  words,  // all blocks: each releases a word of its own, one warp acquires them all
  flags,  // each warp: the words of those blocks whose shares it reads
  data,   // each thread: the words themselves, which carry the epoch in their upper half
};

/// Where the weights of a step come from. The numbers are those of `Source` on the host.
enum Source : u32 {
  kNoWeights,
  kAfter,     // loads after the crossing
  kAhead,     // as many loads as registers hold before it, the others after
  kRing,      // a warp of its own copies them to a ring, as far ahead as there is room
  kBesideIt,  // a ring that nobody reads streams beside the steps, until they end or for all slots
};

constexpr u32 kRingSlots = 12;
constexpr u32 kMostWarps = 32;
/// `sync` begins with the counter; the blocks' words follow in another line.
constexpr u32 kWordsOffset = 64;

struct Chain {
  const u32* initial;  // what step 0 reads
  u32* passed;         // twice `words`, in turn; u64 each where data carries the epoch
  u32* epochs;         // of each block: how many steps all launches have made
  u32* sync;
  u32* fault;
  const uint4* weights;
  u32* streamed;  // of each block: slots of a ring that nobody reads
  u32 words, reach, slots, steps;
  u32 first, wrap;  // step s has the weights number (first + s) % wrap
  u32 source, delays;
};

/// What a block is in the middle of.
struct Place {
  u32 step;
  u32 reached;    // the epoch that those have reached who passed on what this step reads
  u32 consumers;  // threads
};

#if BOUNDARIES_HOPPER
struct Ring {
  u64 full[kRingSlots];
  u64 free[kRingSlots];
};

__device__ __forceinline__ const uint4* slot_address(const Chain& chain, u32 step, u32 slot) {
  const u64 number = (chain.first + step) % chain.wrap;
  return chain.weights + ((number * gridDim.x + blockIdx.x) * chain.slots + slot) * kSlotVectors;
}

/// Copies the weights of all steps, in order, into free slots.
__device__ void fill_ring(const Chain& chain, Ring& ring, uint4* memory) {
  u32 copied = 0;
  for (u32 step = 0; step < chain.steps; ++step) {
    for (u32 slot = 0; slot < chain.slots; ++slot, ++copied) {
      const u32 at = copied % kRingSlots;
      const u32 round = copied / kRingSlots;
      if (round > 0 && !await_phase(&ring.free[at], (round - 1) % 2, chain.fault, step + 1)) return;
      expect_bytes(&ring.full[at], kSlotBytes);
      copy_slot(memory + at * kSlotVectors, slot_address(chain, step, slot), &ring.full[at]);
    }
  }
}

/// Copies slots that nobody reads, until `*ended` or for all steps.
__device__ void stream_beside(const Chain& chain, Ring& ring, uint4* memory,
                              const volatile u32* ended) {
  const u32 limit = chain.slots == 0 ? ~0u : chain.slots * chain.steps;
  const u64 all = static_cast<u64>(chain.wrap) * (chain.slots == 0 ? 1 : chain.slots) * gridDim.x;
  u32 copied = 0;
  for (; copied < limit && *ended == 0; ++copied) {
    const u32 at = copied % kRingSlots;
    const u32 round = copied / kRingSlots;
    if (round > 0 && !await_phase(&ring.full[at], (round - 1) % 2, chain.fault, 1)) break;
    const u64 number = (static_cast<u64>(copied) * gridDim.x + blockIdx.x) % all;
    expect_bytes(&ring.full[at], kSlotBytes);
    copy_slot(memory + at * kSlotVectors, chain.weights + number * kSlotVectors, &ring.full[at]);
  }
  for (u32 i = copied < kRingSlots ? 0 : copied - kRingSlots; i < copied; ++i) {
    await_phase(&ring.full[i % kRingSlots], i / kRingSlots % 2, chain.fault, 1);
  }
  chain.streamed[blockIdx.x] = copied;
}

/// This thread's part of the sum of a step's slots.
__device__ __forceinline__ u32 sum_slots(const Chain& chain, Ring& ring, const uint4* memory,
                                         const Place& place) {
  u32 sum = 0;
  for (u32 slot = 0; slot < chain.slots; ++slot) {
    const u32 number = place.step * chain.slots + slot;
    const u32 at = number % kRingSlots;
    if (!await_phase(&ring.full[at], number / kRingSlots % 2, chain.fault, place.step + 1))
      return 0;
    for (u32 i = threadIdx.x; i < kSlotVectors; i += place.consumers) {
      sum += sum_of(memory[at * kSlotVectors + i]);
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(&ring.free[at]);
  }
  return sum;
}
#endif

/// The blocks whose shares a warp reads where all words go to everybody.
__device__ __forceinline__ Share blocks_of_warp(u32 consumers) {
  const u32 warp = threadIdx.x / 32;
  const u32 warps = consumers / 32;
  return {gridDim.x * warp / warps, gridDim.x * (warp + 1) / warps};
}

/// Spins until `*word`, which only grows, has reached `value`.
template <bool ACQUIRE>
__device__ __forceinline__ void await_word(const u32* word, u32 value, u32* fault, u32 place) {
  Patience patience{fault, place};
  const auto load = [&] { return ACQUIRE ? load_acquire(word) : *(const volatile u32*)word; };
  while (static_cast<int>(load() - value) < 0 && !patience.is_over()) {
  }
}

/// Tells the others that this block has ended a step. `before` is the counter as this block found
/// it. What it passes on was written by warp 0, when all of the block had read.
template <Crossing CROSSING>
__device__ __forceinline__ void tell(const Chain& chain, const Place& place, u32& before) {
  if constexpr (CROSSING == Crossing::none || CROSSING == Crossing::data) return;
  if (chain.words == 0) meet(place.consumers);
  if (threadIdx.x >= 32) return;
  __syncwarp();
  if (threadIdx.x != 0) return;
  if constexpr (CROSSING == Crossing::add) {
    __threadfence();
    before = atomicAdd(chain.sync, 1u);
  } else if constexpr (CROSSING == Crossing::red) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(chain.sync) : "memory");
  } else {
    store_release(chain.sync + kWordsOffset + blockIdx.x, place.reached + 1);
  }
}

/// Waits for those whose words this step reads.
template <Crossing CROSSING>
__device__ __forceinline__ void cross(const Chain& chain, const Place& place, u32 before) {
  const u32* words = chain.sync + kWordsOffset;
  const u32 code = place.step + 1;
  if constexpr (CROSSING == Crossing::add) {
    if (threadIdx.x == 0) {
      await_word<false>(chain.sync, before - before % gridDim.x + gridDim.x, chain.fault, code);
      __threadfence();
    }
    meet(place.consumers);
  } else if constexpr (CROSSING == Crossing::red) {
    if (threadIdx.x == 0) {
      await_word<true>(chain.sync, place.reached * gridDim.x, chain.fault, code);
    }
    meet(place.consumers);
  } else if constexpr (CROSSING == Crossing::words) {
    if (threadIdx.x < 32) {
      for (u32 block = threadIdx.x; block < gridDim.x; block += 32) {
        await_word<true>(words + block, place.reached, chain.fault, code);
      }
    }
    meet(place.consumers);
  } else if constexpr (CROSSING == Crossing::flags) {
    const u32 lane = threadIdx.x % 32;
    if (chain.reach == kNeighbours) {
      if (lane < 2) {
        const u32 block = lane == 0 ? left_of(blockIdx.x) : right_of(blockIdx.x);
        await_word<true>(words + block, place.reached, chain.fault, code);
      }
    } else {
      const Share blocks = blocks_of_warp(place.consumers);
      for (u32 block = blocks.first + lane; block < blocks.end; block += 32) {
        await_word<true>(words + block, place.reached, chain.fault, code);
      }
    }
    __syncwarp();
  }
}

/// This thread's part of the sum of words `first` to `end`, which `lane` of `lanes` reads.
__device__ __forceinline__ u32 sum_range(const u32* in, u32 first, u32 end, u32 lane, u32 lanes) {
  u32 sum = 0;
  for (u32 i = first + lane; i < end; i += lanes) sum += __ldcg(in + i);
  return sum;
}

/// The same where each word carries its epoch, which it waits for.
__device__ __forceinline__ u32 sum_tagged(const u64* in, u32 first, u32 end, u32 lane, u32 lanes,
                                          const Place& place, u32* fault) {
  constexpr u32 kAtOnce = 8;
  u32 sum = 0;
  for (u32 begin = first + lane; begin < end; begin += kAtOnce * lanes) {
    Patience patience{fault, place.step + 1};
    bool complete = false;
    while (!complete) {
      u64 tagged[kAtOnce];
      u32 all = 0;
      complete = true;
#pragma unroll
      for (u32 i = 0; i < kAtOnce; ++i) {
        const u32 at = begin + i * lanes;
        tagged[i] = static_cast<u64>(place.reached) << 32;
        if (at < end) {
          asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];"
                       : "=l"(tagged[i])
                       : "l"(in + at)
                       : "memory");
        }
      }
#pragma unroll
      for (u32 i = 0; i < kAtOnce; ++i) {
        complete = complete && static_cast<u32>(tagged[i] >> 32) == place.reached;
        all += static_cast<u32>(tagged[i]);
      }
      if (complete) sum += all;
      if (!complete && patience.is_over()) return sum;
    }
  }
  return sum;
}

/// This thread's part of the sum of what the step before passed on to this block.
template <Crossing CROSSING>
__device__ __forceinline__ u32 sum_passed(const Chain& chain, const Place& place) {
  constexpr bool TAGGED = CROSSING == Crossing::data;
  const u32 offset = (place.step + 1) % 2 * chain.words;
  const bool initial = place.step == 0;
  const auto sum = [&](u32 first, u32 end, u32 lane, u32 lanes) {
    if (TAGGED && !initial) {
      return sum_tagged(reinterpret_cast<const u64*>(chain.passed) + offset, first, end, lane,
                        lanes, place, chain.fault);
    }
    return sum_range(initial ? chain.initial : chain.passed + offset, first, end, lane, lanes);
  };
  if (chain.reach == kNeighbours) {
    // Half of the threads read each side, in whole warps.
    const u32 half = place.consumers / 64 * 32;
    const bool left = threadIdx.x < half;
    const Share share = share_of(left ? left_of(blockIdx.x) : right_of(blockIdx.x), chain.words);
    return sum(share.first, share.end, left ? threadIdx.x : threadIdx.x - half,
               left ? half : place.consumers - half);
  }
  if (chain.reach != kEverybody) return 0;
  if constexpr (CROSSING == Crossing::flags) {
    const Share blocks = blocks_of_warp(place.consumers);
    if (blocks.first == blocks.end) return 0;
    return sum(share_of(blocks.first, chain.words).first, share_of(blocks.end - 1, chain.words).end,
               threadIdx.x % 32, 32);
  }
  return sum(0, chain.words, threadIdx.x, place.consumers);
}

/// Warp 0 writes the block's share.
template <Crossing CROSSING>
__device__ __forceinline__ void pass_on(const Chain& chain, const Place& place, u32 all) {
  if (threadIdx.x >= 32) return;
  delay(chain.delays, place.step);
  const u32 offset = place.step % 2 * chain.words;
  const Share mine = share_of(blockIdx.x, chain.words);
  for (u32 i = mine.first + threadIdx.x; i < mine.end; i += 32) {
    const u32 word = mixed(all, i, place.step);
    if constexpr (CROSSING == Crossing::data) {
      u64* to = reinterpret_cast<u64*>(chain.passed) + offset + i;
      const u64 tagged = static_cast<u64>(place.reached + 1) << 32 | word;
      asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(tagged) : "memory");
    } else {
      chain.passed[offset + i] = word;
    }
  }
}

template <Crossing CROSSING>
__device__ __forceinline__ void run_chain(const Chain& chain) {
  __shared__ u32 partial[2][kMostWarps];
  Place place{0, chain.epochs[blockIdx.x], blockDim.x};
#if BOUNDARIES_HOPPER
  extern __shared__ __align__(128) uint4 memory[];
  __shared__ Ring ring;
  __shared__ volatile u32 ended;
  const bool has_ring = chain.source == kRing || chain.source == kBesideIt;
  if (has_ring) {
    place.consumers -= 32;
    if (threadIdx.x == 0) {
      ended = 0;
      for (u32 i = 0; i < kRingSlots; ++i) {
        init_barrier(&ring.full[i], 1);
        init_barrier(&ring.free[i], place.consumers / 32);
      }
      fence_barriers();
    }
    __syncthreads();
    if (threadIdx.x >= place.consumers) {
      if (threadIdx.x == place.consumers) {
        if (chain.source == kRing)
          fill_ring(chain, ring, memory);
        else
          stream_beside(chain, ring, memory, &ended);
      }
      return;
    }
  }
#endif
  const u32 count = chain.slots * kSlotVectors;
  u32 before = 0;
  u32 kept = 0;  // what is passed on to nobody
  for (; place.step < chain.steps; ++place.step, ++place.reached) {
    const u64 number = (chain.first + place.step) % chain.wrap;
    const uint4* part = chain.weights + (number * gridDim.x + blockIdx.x) * count;
    HeldWeights held;
    if (chain.source == kAhead) held.load(part, 0, count, place.consumers);
    if (place.step > 0) cross<CROSSING>(chain, place, before);
    // Tagged words are crossed as they are read; else the weights come meanwhile.
    const bool after = chain.source == kAfter;
    if (after && CROSSING != Crossing::data) held.load(part, 0, count, place.consumers);
    u32 sum = sum_passed<CROSSING>(chain, place);
    if (after && CROSSING == Crossing::data) held.load(part, 0, count, place.consumers);
    if (after || chain.source == kAhead) {
      sum += held.sum();
      sum += sum_weights(part, kHeldVectors * place.consumers, count, place.consumers);
    }
#if BOUNDARIES_HOPPER
    if (chain.source == kRing) sum += sum_slots(chain, ring, memory, place);
#endif
    if (chain.words != 0) {
      const u32 all = block_sum(sum, partial[place.step % 2], place.consumers);
      pass_on<CROSSING>(chain, place, all);
    } else {
      kept += sum;
    }
    tell<CROSSING>(chain, place, before);
  }
  if (chain.words == 0 && (chain.source == kRing || chain.source == kAfter)) {
    const u32 all = block_sum(kept, partial[0], place.consumers);
    if (threadIdx.x == 0) chain.passed[blockIdx.x] = all;
  }
  meet(place.consumers);
  if (threadIdx.x == 0) {
    chain.epochs[blockIdx.x] = place.reached;
#if BOUNDARIES_HOPPER
    // Where all slots are to be streamed, their warp ends by itself.
    if (has_ring && chain.slots == 0) ended = 1;
#endif
  }
}

#define CHAIN(name, crossing)                                                                      \
  extern "C" __global__ void __launch_bounds__(544, 1)                                             \
      name(const u32* initial, u32* passed, u32* epochs, u32* sync, u32* fault,                    \
           const uint4* weights, u32* streamed, u32 words, u32 reach, u32 slots, u32 steps,        \
           u32 first, u32 wrap, u32 source, u32 delays) {                                          \
    run_chain<Crossing::crossing>({initial, passed, epochs, sync, fault, weights, streamed, words, \
                                   reach, slots, steps, first, wrap, source, delays});             \
  }

CHAIN(chain_none, none)
CHAIN(chain_add, add)
CHAIN(chain_red, red)
CHAIN(chain_words, words)
CHAIN(chain_flags, flags)
CHAIN(chain_data, data)
