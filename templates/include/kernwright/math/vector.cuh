#pragma once
// Loads and stores of 1 to 16 bytes with cache hints, and their conversion to and from fp32.
// Data stay packed in registers until they are used, so that a row costs its bytes and no more.

#include <kernwright/math/types.cuh>

namespace kernwright {

// `Bytes` (1, 2, 4, 8 or 16) of consecutive elements; fewer than 4 are at the low end of the word.
template <int Bytes>
struct Packed {
  unsigned word[Bytes < 4 ? 1 : Bytes / 4];
};

// Makes x a value of which the compiler knows nothing. Values that it computed from x before are
// computed anew when they are needed again, instead of being kept in registers. This takes no
// instruction, and the assembler, ptxas, sees through it.
__device__ __forceinline__ void hide_from_optimizer(long long& x) { asm("" : "+l"(x)); }
template <int Bytes>
__device__ __forceinline__ void hide_from_optimizer(Packed<Bytes>& x) {
#pragma unroll
  for (unsigned& word : x.word) asm("" : "+r"(word));
}

// Hides x from ptxas too, by an instruction for each word: ptxas cannot know that the grid has one
// layer, as it must have, and so takes x for changed.
template <int Bytes>
__device__ __forceinline__ void hide_from_assembler(Packed<Bytes>& x) {
#pragma unroll
  for (unsigned& word : x.word) word |= blockIdx.z;
}

// The cache hints of a load. `plain` is coherent; the others go through the read-only path and must
// not see data that the same kernel writes.
enum class Load { plain, read_only, no_allocate };
// `as_one` is for vectors that are written in parts elsewhere: the compiler would share the parts'
// addresses and write the whole in words too.
enum class Store { plain, streaming, as_one };

template <Load Hint, int Bytes>
__device__ __forceinline__ Packed<Bytes> load(const void* address) {
  static_assert(Bytes == 1 || Bytes == 2 || Bytes == 4 || Bytes == 8 || Bytes == 16);
  Packed<Bytes> x;
  if constexpr (Bytes == 16) {
    uint4 v;
    if constexpr (Hint == Load::no_allocate) {
      asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                   : "l"(address));
    } else if constexpr (Hint == Load::read_only) {
      v = __ldg(static_cast<const uint4*>(address));
    } else {
      v = *static_cast<const uint4*>(address);
    }
    x.word[0] = v.x;
    x.word[1] = v.y;
    x.word[2] = v.z;
    x.word[3] = v.w;
  } else if constexpr (Bytes == 8) {
    uint2 v;
    if constexpr (Hint == Load::no_allocate) {
      asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
                   : "=r"(v.x), "=r"(v.y)
                   : "l"(address));
    } else if constexpr (Hint == Load::read_only) {
      v = __ldg(static_cast<const uint2*>(address));
    } else {
      v = *static_cast<const uint2*>(address);
    }
    x.word[0] = v.x;
    x.word[1] = v.y;
  } else if constexpr (Bytes ==
                       4) {  // narrow loads share lines with their neighbours: keep them in L1
    x.word[0] = Hint == Load::plain ? *static_cast<const unsigned*>(address)
                                    : __ldg(static_cast<const unsigned*>(address));
  } else if constexpr (Bytes == 2) {
    x.word[0] = Hint == Load::plain ? *static_cast<const unsigned short*>(address)
                                    : __ldg(static_cast<const unsigned short*>(address));
  } else {
    x.word[0] = Hint == Load::plain ? *static_cast<const unsigned char*>(address)
                                    : __ldg(static_cast<const unsigned char*>(address));
  }
  return x;
}

// Asks the L2 for the line at `address`. This is allowed ahead of await_previous_kernel: later
// writes of the previous kernel to the line go through the L2 as well.
__device__ __forceinline__ void prefetch_line(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

template <Store Hint, int Bytes>
__device__ __forceinline__ void store(void* address, const Packed<Bytes>& x) {
  static_assert(Bytes == 1 || Bytes == 2 || Bytes == 4 || Bytes == 8 || Bytes == 16);
  if constexpr (Bytes == 16) {
    const uint4 v{x.word[0], x.word[1], x.word[2], x.word[3]};
    if constexpr (Hint == Store::streaming) {
      __stcs(static_cast<uint4*>(address), v);
    } else if constexpr (Hint == Store::as_one) {
      asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(v.x), "r"(v.y),
                   "r"(v.z), "r"(v.w)
                   : "memory");
    } else {
      *static_cast<uint4*>(address) = v;
    }
  } else if constexpr (Bytes == 8) {
    const uint2 v{x.word[0], x.word[1]};
    if constexpr (Hint == Store::streaming) {
      __stcs(static_cast<uint2*>(address), v);
    } else if constexpr (Hint == Store::as_one) {
      asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(address), "r"(v.x), "r"(v.y)
                   : "memory");
    } else {
      *static_cast<uint2*>(address) = v;
    }
  } else if constexpr (Bytes == 4) {
    *static_cast<unsigned*>(address) = x.word[0];
  } else if constexpr (Bytes == 2) {
    *static_cast<unsigned short*>(address) = static_cast<unsigned short>(x.word[0]);
  } else {
    *static_cast<unsigned char*>(address) = static_cast<unsigned char>(x.word[0]);
  }
}

// Loads from shared memory, by its 32-bit address.
template <int Bytes>
__device__ __forceinline__ Packed<Bytes> load_shared(unsigned address) {
  static_assert(Bytes == 2 || Bytes == 4 || Bytes == 8 || Bytes == 16);
  Packed<Bytes> x;
  if constexpr (Bytes == 16) {
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.word[0]), "=r"(x.word[1]), "=r"(x.word[2]), "=r"(x.word[3])
                 : "r"(address)
                 : "memory");
  } else if constexpr (Bytes == 8) {
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
                 : "=r"(x.word[0]), "=r"(x.word[1])
                 : "r"(address)
                 : "memory");
  } else if constexpr (Bytes == 4) {
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x.word[0]) : "r"(address) : "memory");
  } else {
    asm volatile("ld.shared.u16 %0, [%1];" : "=r"(x.word[0]) : "r"(address) : "memory");
  }
  return x;
}

__device__ __forceinline__ void store_shared(unsigned address, const Packed<16>& x) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(x.word[0]),
               "r"(x.word[1]), "r"(x.word[2]), "r"(x.word[3])
               : "memory");
}

// Returns element `i` of a packed group of T as fp32.
template <typename T, int Bytes>
__device__ __forceinline__ float lane(const Packed<Bytes>& x, int i) {
  if constexpr (sizeof(T) == 4) {
    return __uint_as_float(x.word[i]);
  } else if constexpr (sizeof(T) == 2) {
    const unsigned word = x.word[i / 2];
    return to_float(T{static_cast<unsigned short>(i % 2 == 0 ? word : word >> 16)});
  } else {
    static_assert(sizeof(T) == 1);
    return to_float(T{static_cast<unsigned char>(x.word[i / 4] >> i % 4 * 8)});
  }
}

// Sets element `i`, of 2 or 4 bytes, which is 0.
template <int Size, int Bytes>
__device__ __forceinline__ void set_element(Packed<Bytes>& x, int i, const Packed<Size>& value) {
  static_assert(Size == 2 || Size == 4);
  x.word[i * Size / 4] |= Size == 2 && i % 2 == 1 ? value.word[0] << 16 : value.word[0];
}

// Returns the lower or the upper half, which begins a word or, with 4 bytes and less, is within
// one.
template <bool Upper, int Bytes>
__device__ __forceinline__ Packed<Bytes / 2> half(const Packed<Bytes>& x) {
  Packed<Bytes / 2> part;
  if constexpr (Bytes > 4) {
#pragma unroll
    for (int i = 0; i < Bytes / 8; ++i) part.word[i] = x.word[i + (Upper ? Bytes / 8 : 0)];
  } else {
    part.word[0] = Upper ? x.word[0] >> Bytes * 4 : x.word[0];
  }
  return part;
}

// Writes the elements whose bits are set, in the fewest stores: the L2 counts them.
template <typename T, int Bytes>
__device__ __forceinline__ void store_some(T* to, const Packed<Bytes>& x, unsigned bits) {
  constexpr int kCount = Bytes / sizeof(T);
  constexpr unsigned kAll = (1u << kCount) - 1;
  if (bits == kAll) {
    store<Store::as_one>(to, x);
  } else if constexpr (kCount > 1) {
    if (bits == 0) return;
    store_some(to, half<false>(x), bits & ((1u << kCount / 2) - 1));
    store_some(to + kCount / 2, half<true>(x), bits >> kCount / 2);
  }
}

// Rounds and packs Bytes / sizeof(T) values.
template <typename T, int Bytes>
__device__ __forceinline__ Packed<Bytes> pack(const float (&value)[Bytes / sizeof(T)]) {
  Packed<Bytes> x;
  if constexpr (sizeof(T) == 4) {
#pragma unroll
    for (int i = 0; i < Bytes / 4; ++i) x.word[i] = __float_as_uint(value[i]);
  } else if constexpr (Bytes == sizeof(T)) {
    x.word[0] = bits_of(from_float<T>(value[0]));
  } else if constexpr (Bytes == 2) {
    x.word[0] = pack_pair<T>(value[0], value[1]);
  } else if constexpr (sizeof(T) == 1) {
#pragma unroll
    for (int i = 0; i < Bytes / 4; ++i) {
      x.word[i] = pack_pair<T>(value[4 * i], value[4 * i + 1]) |
                  pack_pair<T>(value[4 * i + 2], value[4 * i + 3]) << 16;
    }
  } else {
#pragma unroll
    for (int i = 0; i < Bytes / 4; ++i) x.word[i] = pack_pair<T>(value[2 * i], value[2 * i + 1]);
  }
  return x;
}

// `Count` consecutive elements of T, packed, in vectors as wide as a power of two of them allows.
template <typename T, int Count>
struct Elements {
  static constexpr int kBytes = Count * sizeof(T) < 16 ? Count * sizeof(T) : 16;
  static constexpr int kLanes = kBytes / sizeof(T);
  Packed<kBytes> part[Count / kLanes];

  __device__ __forceinline__ float operator[](int i) const {
    return lane<T>(part[i / kLanes], i % kLanes);
  }
};

template <Load Hint, int Count, typename T>
__device__ __forceinline__ Elements<T, Count> load_elements(const T* from) {
  using All = Elements<T, Count>;
  All x;
#pragma unroll
  for (int i = 0; i < Count / All::kLanes; ++i) {
    x.part[i] = load<Hint, All::kBytes>(from + i * All::kLanes);
  }
  return x;
}

// Returns part `i` of Elements of `Count` values, rounded.
template <typename T, int Count>
__device__ __forceinline__ auto round_part(const float (&value)[Count], int i) {
  using All = Elements<T, Count>;
  float part[All::kLanes];
#pragma unroll
  for (int j = 0; j < All::kLanes; ++j) part[j] = value[i * All::kLanes + j];
  return pack<T, All::kBytes>(part);
}

// Rounds `Count` values and writes those whose bits are set.
template <int Count, typename T>
__device__ __forceinline__ void store_some_elements(T* to, const float (&value)[Count],
                                                    unsigned bits) {
  using All = Elements<T, Count>;
#pragma unroll
  for (int i = 0; i < Count / All::kLanes; ++i) {
    store_some(to + i * All::kLanes, round_part<T>(value, i),
               bits >> i * All::kLanes & ((1u << All::kLanes) - 1));
  }
}

// Rounds and writes `Count` values.
template <Store Hint, int Count, typename T>
__device__ __forceinline__ void store_elements(T* to, const float (&value)[Count]) {
  using All = Elements<T, Count>;
#pragma unroll
  for (int i = 0; i < Count / All::kLanes; ++i) {
    store<Hint>(to + i * All::kLanes, round_part<T>(value, i));
  }
}

}  // namespace kernwright
