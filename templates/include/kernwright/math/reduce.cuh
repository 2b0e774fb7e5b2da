#pragma once
// Reductions over groups of neighbouring threads, in one block or in a cluster. Every thread of the
// group gets the result, and all get the same bits, since the order is fixed. A reduction is a type
// with `Value` (plain data of whole words), `identity()` and `combine(a, b)`.

#include <kernwright/math/exp.cuh>
#include <kernwright/math/types.cuh>
#include <kernwright/ptx/cluster.cuh>
#include <kernwright/ptx/cp_async.cuh>
#include <kernwright/ptx/mbarrier.cuh>
#include <kernwright/ptx/warp_roles.cuh>

namespace kernwright {

__device__ __forceinline__ float minus_infinity() { return __uint_as_float(0xff800000u); }

// Chosen<C, A, B>::Type is A if C is true, else B.
template <bool First, typename A, typename B>
struct Chosen {
  using Type = A;
};
template <typename A, typename B>
struct Chosen<false, A, B> {
  using Type = B;
};

struct Sum {
  using Value = float;
  static __device__ __forceinline__ Value identity() { return 0; }
  static __device__ __forceinline__ Value combine(Value a, Value b) { return a + b; }
};

// The result is NaN if any value is.
struct Max {
  using Value = float;
  static __device__ __forceinline__ Value identity() { return minus_infinity(); }
  static __device__ __forceinline__ Value combine(Value a, Value b) { return larger(a, b); }
  // Reduces over a whole warp, as integers that are ordered like the values; combining makes any
  // NaN the largest of these.
  template <int Width>
    requires(Width == 32)
  static __device__ __forceinline__ Value over_lanes(Value x) {
    const int bits = __float_as_int(combine(x, x));
    const int most = __reduce_max_sync(0xffffffffu, bits < 0 ? bits ^ 0x7fffffff : bits);
    return __int_as_float(most < 0 ? most ^ 0x7fffffff : most);
  }
};

template <typename Reduction, int Width>
__device__ __forceinline__ typename Reduction::Value warp_reduce(typename Reduction::Value x);

// The largest of some values, and the sum of e^(value - largest): both halves of a softmax in one
// round. A value of -inf counts for nothing.
struct LogSum {
  struct Value {
    float largest;
    float sum;
  };
  static __device__ __forceinline__ Value identity() { return {minus_infinity(), 0}; }
  static __device__ __forceinline__ Value combine(const Value& a, const Value& b) {
    const float largest = Max::combine(a.largest, b.largest);
    return {largest, a.sum * factor(a.largest, largest) + b.sum * factor(b.largest, largest)};
  }
  // Combines over lanes of a warp: this takes one exponential, while combining step by step takes
  // two a step.
  template <int Width>
  static __device__ __forceinline__ Value over_lanes(Value x) {
    const float largest = warp_reduce<Max, Width>(x.largest);
    return {largest, warp_reduce<Sum, Width>(x.sum * factor(x.largest, largest))};
  }
  // Returns the factor that takes a sum relative to `from` to one relative to `to`, which is not
  // less.
  static __device__ __forceinline__ float factor(float from, float to) {
    return exp_fast(from == to ? 0.0f : from - to);  // both may be -inf
  }
};

// Several values side by side, each combined as `Reduction` does: their shuffles interleave, and
// they wait for other warps once.
template <typename Reduction, int Count>
struct Each {
  struct Value {
    typename Reduction::Value of[Count];
  };
  static __device__ __forceinline__ Value identity() {
    Value x;
#pragma unroll
    for (int i = 0; i < Count; ++i) x.of[i] = Reduction::identity();
    return x;
  }
  static __device__ __forceinline__ Value combine(const Value& a, const Value& b) {
    Value x;
#pragma unroll
    for (int i = 0; i < Count; ++i) x.of[i] = Reduction::combine(a.of[i], b.of[i]);
    return x;
  }
};

// Two reductions side by side.
template <typename First, typename Second>
struct Both {
  struct Value {
    typename First::Value first;
    typename Second::Value second;
  };
  static __device__ __forceinline__ Value identity() {
    return {First::identity(), Second::identity()};
  }
  static __device__ __forceinline__ Value combine(const Value& a, const Value& b) {
    return {First::combine(a.first, b.first), Second::combine(a.second, b.second)};
  }
};

template <typename T>
struct Words {
  static_assert(sizeof(T) % 4 == 0);
  static constexpr int kCount = sizeof(T) / 4;
  unsigned word[kCount];
};

template <typename T>
__device__ __forceinline__ T shuffle_xor(const T& x, int offset) {
  Words<T> words = __builtin_bit_cast(Words<T>, x);
#pragma unroll
  for (int i = 0; i < Words<T>::kCount; ++i) {
    words.word[i] = __shfl_xor_sync(0xffffffffu, words.word[i], offset);
  }
  return __builtin_bit_cast(T, words);
}

// Reduces over `Width` lanes of a warp (a power of two up to 32), in steps unless the reduction has
// a shorter way. All lanes of the warp must call.
template <typename Reduction, int Width>
__device__ __forceinline__ typename Reduction::Value warp_reduce(typename Reduction::Value x) {
  static_assert(Width >= 1 && Width <= 32 && (Width & (Width - 1)) == 0);
  if constexpr (requires { Reduction::template over_lanes<Width>(x); }) {
    return Reduction::template over_lanes<Width>(x);
  } else {
#pragma unroll
    for (int offset = Width / 2; offset > 0; offset /= 2) {
      x = Reduction::combine(x, shuffle_xor(x, offset));
    }
    return x;
  }
}

// Sends `x` to the place in block `rank` of the cluster that `place` is in this block, and counts
// it there on the mbarrier at `received`.
template <typename T>
__device__ __forceinline__ void send_to_rank(T* place, const T& x, unsigned rank,
                                             unsigned received) {
  const unsigned address = cluster_address(shared_address(place), rank);
  const unsigned barrier = cluster_address(received, rank);
  const Words<T> words = __builtin_bit_cast(Words<T>, x);
#pragma unroll
  for (int i = 0; i < Words<T>::kCount; ++i) {
    cluster_store(address + 4 * i, words.word[i], barrier);
  }
}

// Combines the results of `Warps` warps of each of `Cluster` blocks, two or more together, with one
// barrier: each warp writes its part to all blocks, and then combines all parts itself. `parts` is
// the group's own, and has an entry for every warp of the cluster; a caller that reduces again must
// alternate between two such arrays, because nothing here waits for the readers. A block has
// `Groups` of these warps, which do not wait for one another. In a cluster the blocks must have
// started (cluster_wait) before, and `received` is the shared address of an mbarrier of one arrival
// that belongs to `parts`, in the phase of `parity`: a barrier of the cluster would publish, and so
// wait for, all that was stored to memory before.
template <typename Reduction, int Warps, int Cluster, int Groups = 1>
__device__ __forceinline__ typename Reduction::Value combine_warps(typename Reduction::Value x,
                                                                   typename Reduction::Value* parts,
                                                                   unsigned received = 0,
                                                                   unsigned parity = 0) {
  constexpr int kParts = Warps * Cluster;
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32 % Warps;
  if constexpr (Cluster == 1) {
    if (lane == 0) parts[warp] = x;
    if constexpr (Groups == 1) {
      __syncthreads();
    } else {
      named_barrier_sync(1 + threadIdx.x / (32 * Warps), 32 * Warps);
    }
  } else {
    if (threadIdx.x == 0) mbarrier_arrive_expect(received, kParts * sizeof(x));
    if (lane < Cluster) send_to_rank(parts + cluster_rank() * Warps + warp, x, lane, received);
    mbarrier_wait(received, parity);
  }
  if constexpr (kParts <= 32 && (kParts & (kParts - 1)) == 0) {
    return warp_reduce<Reduction, kParts>(parts[lane % kParts]);
  } else {
    x = Reduction::identity();
#pragma unroll
    for (int first = 0; first < kParts; first += 32) {
      if (first + lane < kParts) x = Reduction::combine(x, parts[first + lane]);
    }
    return warp_reduce<Reduction, 32>(x);
  }
}

}  // namespace kernwright
