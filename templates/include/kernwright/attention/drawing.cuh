#pragma once
// Parts of kernels that draw inputs: numbers from a seed and a place, and sequences of different
// lengths in pages in any order. For operations that draw their inputs themselves.

#include <kernwright/config.cuh>

namespace kernwright::config {

// The entry of a page table behind a sequence's last page.
constexpr int kNoPage = 2147483647;

// Returns the finaliser of SplitMix64 on a counter.
__device__ inline unsigned long long hash_at(unsigned long long seed, unsigned long long i) {
  unsigned long long z = seed + (i + 1) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

__device__ inline float normal(unsigned long long bits) {
  const float u = (static_cast<float>(bits >> 40) + 1) * 0x1p-24f;  // (0, 1]; Box-Muller
  const float w = static_cast<float>(bits & 0xffffff) * 0x1p-24f;
  return sqrtf(-2 * logf(u)) * cospif(2 * w);
}

__device__ inline float sign(unsigned long long bits) { return bits & 1 ? 1.0f : -1.0f; }

__device__ inline long long common_divisor(long long a, long long b) {
  while (b != 0) {
    const long long rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

// A permutation of `count` things. Each goes to i * step + shift, with a step that has no divisor
// in common with it.
struct Order {
  __device__ Order(unsigned long long seed, long long count) : count(count) {
    const auto numbers = static_cast<unsigned long long>(count);
    step = static_cast<long long>(hash_at(seed, 0) % numbers);
    while (common_divisor(step, count) != 1) step = (step + 1) % count;
    shift = static_cast<long long>(hash_at(seed, 1) % numbers);
  }
  __device__ long long operator()(long long i) const { return (i % count * step + shift) % count; }

  long long count, step = 0, shift = 0;
};

// Lengths of `count` sequences that have `total` tokens together and at most `longest` each: all of
// them equal if that leaves no choice, and else a power of the place in order, with ever fewer long
// ones.
struct Lengths {
  __device__ long long before(long long rank) const {
    const double share = static_cast<double>(rank) / static_cast<double>(count);
    const double power =
        static_cast<double>(longest) * static_cast<double>(count) / static_cast<double>(total);
    return static_cast<long long>(static_cast<double>(total) * exp(power * log(share)));
  }
  __device__ long long operator()(long long rank) const {
    return total == longest * count ? longest : before(rank + 1) - before(rank);
  }

  long long count, total, longest;
};

// Returns a length at which kernels change their path, or `any`.
__device__ inline long long edge(unsigned long long bits, long long page_size, long long any) {
  const long long edges[] = {
      0,   1,  63, 64, 65, 127, 128, 129, 255, 256, 257, page_size - 1, page_size, page_size + 1,
      any, any};
  return edges[bits % 16];
}

}  // namespace kernwright::config
