#pragma once
// wgmma (sm_90a): d[64, N] += a[64, K] * b[N, K]^T in fp32, where K are 32 bytes. b is in shared
// memory, and so is a, unless it has 16 or 8 bits and is in registers. Register i of a thread holds
// row 16 * warp + lane / 4 + 8 * (i / 2 % 2) and column 8 * (i / 4) + 2 * (lane % 4) + i % 2.
// Accumulators belong to the hardware from wgmma_issue to the wgmma_wait that covers it. fp32
// operands are taken as tf32: the bits after the tenth of the fraction are cut off. Products of
// int8, both in shared memory, are added in int32: d then has the bits of integers, and N is 8 or a
// multiple of 16.
//
// An operand in shared memory has rows of 128 bytes in the 128-byte swizzle. 8 rows form a group of
// 1024 bytes, aligned to 1024. K-major, a row is a row of the operand: the next K begins 32 bytes
// further on, the next 64 rows 8192 bytes. MN-major, for 16-bit types alone, a row is one k of 64
// rows of the operand: the next K = 16 begins 2048 bytes further on.

#include <kernwright/math/types.cuh>

namespace kernwright {

enum class Major { k, mn };

// Returns the descriptor of an operand at shared `address`. To describe another part of the
// operand, add the distance in bytes / 16. The stride offset is from one group of 8 rows of shared
// memory to the next. The leading offset has no meaning if K-major; if MN-major it is `next_64`,
// the bytes from 64 rows of the operand to the next 64.
template <Major M = Major::k>
__device__ __forceinline__ unsigned long long wgmma_descriptor(unsigned address,
                                                               unsigned next_64 = 0) {
  constexpr unsigned long long kGroupBytes = 1024, kSwizzle128 = 1;
  const unsigned long long leading = M == Major::k ? 1 : next_64 >> 4;
  return (address & 0x3ffff) >> 4 | leading << 16 | (kGroupBytes >> 4) << 32 | kSwizzle128 << 62;
}

// Orders register accesses before wgmma. Must run before the first issue, and whenever ordinary
// code has touched the accumulators.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most `Pending` of the latest groups are still in flight.
template <int Pending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

// Keeps the compiler from moving uses of the accumulators across this point.
template <int Registers>
__device__ __forceinline__ void wgmma_pin(float (&d)[Registers]) {
#pragma unroll
  for (int i = 0; i < Registers; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

template <int N>
struct WgmmaShape;  // issue<T>: one instruction; without `accumulate` d is overwritten
template <int N>
struct WgmmaInt8Shape;  // the same of int8, which knows fewer N

// The operand lists for N = 8 (4 registers) and N = 16. The list of each further N is the list of a
// smaller one and some more.
#define KW_D(i) "+f"(d[i])
#define KW_D4(i) KW_D(i), KW_D(i + 1), KW_D(i + 2), KW_D(i + 3)
#define KW_D8(i) KW_D4(i), KW_D4(i + 4)
#define KW_TEXT_4 "%0, %1, %2, %3"
#define KW_REGISTERS_4 KW_D4(0)
#define KW_TEXT_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define KW_REGISTERS_8 KW_D8(0)
#define KW_TEXT_12 KW_TEXT_8 ", %8, %9, %10, %11"
#define KW_REGISTERS_12 KW_REGISTERS_8, KW_D4(8)
#define KW_TEXT_16 KW_TEXT_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define KW_REGISTERS_16 KW_REGISTERS_8, KW_D8(8)
#define KW_TEXT_24 KW_TEXT_16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define KW_REGISTERS_24 KW_REGISTERS_16, KW_D8(16)
#define KW_TEXT_32 KW_TEXT_24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define KW_REGISTERS_32 KW_REGISTERS_24, KW_D8(24)
#define KW_TEXT_36 KW_TEXT_32 ", %32, %33, %34, %35"
#define KW_REGISTERS_36 KW_REGISTERS_32, KW_D4(32)
#define KW_TEXT_40 KW_TEXT_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define KW_REGISTERS_40 KW_REGISTERS_32, KW_D8(32)
#define KW_TEXT_44 KW_TEXT_40 ", %40, %41, %42, %43"
#define KW_REGISTERS_44 KW_REGISTERS_40, KW_D4(40)
#define KW_TEXT_48 KW_TEXT_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define KW_REGISTERS_48 KW_REGISTERS_40, KW_D8(40)
#define KW_TEXT_52 KW_TEXT_48 ", %48, %49, %50, %51"
#define KW_REGISTERS_52 KW_REGISTERS_48, KW_D4(48)
#define KW_TEXT_56 KW_TEXT_48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define KW_REGISTERS_56 KW_REGISTERS_48, KW_D8(48)
#define KW_TEXT_60 KW_TEXT_56 ", %56, %57, %58, %59"
#define KW_REGISTERS_60 KW_REGISTERS_56, KW_D4(56)
#define KW_TEXT_64 KW_TEXT_56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define KW_REGISTERS_64 KW_REGISTERS_56, KW_D8(56)
#define KW_TEXT_68 KW_TEXT_64 ", %64, %65, %66, %67"
#define KW_REGISTERS_68 KW_REGISTERS_64, KW_D4(64)
#define KW_TEXT_72 KW_TEXT_64 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define KW_REGISTERS_72 KW_REGISTERS_64, KW_D8(64)
#define KW_TEXT_76 KW_TEXT_72 ", %72, %73, %74, %75"
#define KW_REGISTERS_76 KW_REGISTERS_72, KW_D4(72)
#define KW_TEXT_80 KW_TEXT_72 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define KW_REGISTERS_80 KW_REGISTERS_72, KW_D8(72)
#define KW_TEXT_84 KW_TEXT_80 ", %80, %81, %82, %83"
#define KW_REGISTERS_84 KW_REGISTERS_80, KW_D4(80)
#define KW_TEXT_88 KW_TEXT_80 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define KW_REGISTERS_88 KW_REGISTERS_80, KW_D8(80)
#define KW_TEXT_92 KW_TEXT_88 ", %88, %89, %90, %91"
#define KW_REGISTERS_92 KW_REGISTERS_88, KW_D4(88)
#define KW_TEXT_96 KW_TEXT_88 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define KW_REGISTERS_96 KW_REGISTERS_88, KW_D8(88)
#define KW_TEXT_100 KW_TEXT_96 ", %96, %97, %98, %99"
#define KW_REGISTERS_100 KW_REGISTERS_96, KW_D4(96)
#define KW_TEXT_104 KW_TEXT_96 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define KW_REGISTERS_104 KW_REGISTERS_96, KW_D8(96)
#define KW_TEXT_108 KW_TEXT_104 ", %104, %105, %106, %107"
#define KW_REGISTERS_108 KW_REGISTERS_104, KW_D4(104)
#define KW_TEXT_112 KW_TEXT_104 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define KW_REGISTERS_112 KW_REGISTERS_104, KW_D8(104)
#define KW_TEXT_120 KW_TEXT_112 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define KW_REGISTERS_120 KW_REGISTERS_112, KW_D8(112)
#define KW_TEXT_128 KW_TEXT_120 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define KW_REGISTERS_128 KW_REGISTERS_120, KW_D8(120)

#define KW_ASM(N, R, KIND, A, B, P, MORE, ...)                                               \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, " P                                           \
               ", 0;\n"                                                                      \
               "wgmma.mma_async.sync.aligned.m64n" #N KIND " {" KW_TEXT_##R "}, " A ", " B   \
                                                                            ", p" MORE "; }" \
               : KW_REGISTERS_##R                                                            \
               : __VA_ARGS__)
// MAJORS names the operands that follow the signs, if the type can be MN-major.
#define KW_ISSUE(N, R, TYPE, KIND, A, B, P, MAJORS, ...)                                 \
  template <Major MajorA, Major MajorB>                                                  \
  static __device__ __forceinline__ void issue(TYPE, float(&d)[R], unsigned long long a, \
                                               unsigned long long b, int accumulate) {   \
    KW_ASM(N, R, KIND, A, B, P, ", 1, 1" MAJORS, "l"(a), "l"(b),                         \
           "r"(accumulate)__VA_OPT__(, ) __VA_ARGS__);                                   \
  }
#define KW_ISSUE_REGISTERS(N, R, TYPE, KIND, A0, A1, A2, A3, B, P, MAJORS, ...)                 \
  template <Major MajorB>                                                                       \
  static __device__ __forceinline__ void issue(TYPE, float(&d)[R], const unsigned(&a)[4],       \
                                               unsigned long long b, int accumulate) {          \
    KW_ASM(N, R, KIND, "{" A0 ", " A1 ", " A2 ", " A3 "}", B, P, ", 1, 1" MAJORS, "r"(a[0]),    \
           "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate)__VA_OPT__(, ) __VA_ARGS__); \
  }
#define KW_ISSUE_16(N, R, TYPE, KIND, O0, O1, O2, O3, O4, O5, O6)                   \
  KW_ISSUE(N, R, TYPE, KIND, O0, O1, O2, ", " O3 ", " O4, "n"(MajorA == Major::mn), \
           "n"(MajorB == Major::mn))                                                \
  KW_ISSUE_REGISTERS(N, R, TYPE, KIND, O0, O1, O2, O3, O4, O5, ", " O6, "n"(MajorB == Major::mn))
// O0 to O6 name the operands after the registers of d.
#define KW_SHAPE(N, R, O0, O1, O2, O3, O4, O5, O6)                                      \
  template <>                                                                           \
  struct WgmmaShape<N> {                                                                \
    KW_ISSUE_16(N, R, bf16, "k16.f32.bf16.bf16", O0, O1, O2, O3, O4, O5, O6)            \
    KW_ISSUE_16(N, R, fp16, "k16.f32.f16.f16", O0, O1, O2, O3, O4, O5, O6)              \
    KW_ISSUE(N, R, fp8_e4m3, "k32.f32.e4m3.e4m3", O0, O1, O2, "")                       \
    KW_ISSUE_REGISTERS(N, R, fp8_e4m3, "k32.f32.e4m3.e4m3", O0, O1, O2, O3, O4, O5, "") \
    KW_ISSUE(N, R, float, "k8.f32.tf32.tf32", O0, O1, O2, "")                           \
  };
KW_SHAPE(8, 4, "%4", "%5", "%6", "%7", "%8", "%9", "%10")
KW_SHAPE(16, 8, "%8", "%9", "%10", "%11", "%12", "%13", "%14")
KW_SHAPE(24, 12, "%12", "%13", "%14", "%15", "%16", "%17", "%18")
KW_SHAPE(32, 16, "%16", "%17", "%18", "%19", "%20", "%21", "%22")
KW_SHAPE(48, 24, "%24", "%25", "%26", "%27", "%28", "%29", "%30")
KW_SHAPE(64, 32, "%32", "%33", "%34", "%35", "%36", "%37", "%38")
KW_SHAPE(72, 36, "%36", "%37", "%38", "%39", "%40", "%41", "%42")
KW_SHAPE(80, 40, "%40", "%41", "%42", "%43", "%44", "%45", "%46")
KW_SHAPE(88, 44, "%44", "%45", "%46", "%47", "%48", "%49", "%50")
KW_SHAPE(96, 48, "%48", "%49", "%50", "%51", "%52", "%53", "%54")
KW_SHAPE(104, 52, "%52", "%53", "%54", "%55", "%56", "%57", "%58")
KW_SHAPE(112, 56, "%56", "%57", "%58", "%59", "%60", "%61", "%62")
KW_SHAPE(120, 60, "%60", "%61", "%62", "%63", "%64", "%65", "%66")
KW_SHAPE(128, 64, "%64", "%65", "%66", "%67", "%68", "%69", "%70")
KW_SHAPE(136, 68, "%68", "%69", "%70", "%71", "%72", "%73", "%74")
KW_SHAPE(144, 72, "%72", "%73", "%74", "%75", "%76", "%77", "%78")
KW_SHAPE(152, 76, "%76", "%77", "%78", "%79", "%80", "%81", "%82")
KW_SHAPE(160, 80, "%80", "%81", "%82", "%83", "%84", "%85", "%86")
KW_SHAPE(168, 84, "%84", "%85", "%86", "%87", "%88", "%89", "%90")
KW_SHAPE(176, 88, "%88", "%89", "%90", "%91", "%92", "%93", "%94")
KW_SHAPE(184, 92, "%92", "%93", "%94", "%95", "%96", "%97", "%98")
KW_SHAPE(192, 96, "%96", "%97", "%98", "%99", "%100", "%101", "%102")
KW_SHAPE(200, 100, "%100", "%101", "%102", "%103", "%104", "%105", "%106")
KW_SHAPE(208, 104, "%104", "%105", "%106", "%107", "%108", "%109", "%110")
KW_SHAPE(216, 108, "%108", "%109", "%110", "%111", "%112", "%113", "%114")
KW_SHAPE(224, 112, "%112", "%113", "%114", "%115", "%116", "%117", "%118")
KW_SHAPE(240, 120, "%120", "%121", "%122", "%123", "%124", "%125", "%126")
KW_SHAPE(256, 128, "%128", "%129", "%130", "%131", "%132", "%133", "%134")
#undef KW_SHAPE
#undef KW_ISSUE_16
#undef KW_ISSUE_REGISTERS
#undef KW_ISSUE

#undef KW_D  // the lists are expanded where they are used
#define KW_D(i) "+r"(reinterpret_cast<int&>(d[i]))
#define KW_INT8_SHAPE(N, R, A, B, P)                                                     \
  template <>                                                                            \
  struct WgmmaInt8Shape<N> {                                                             \
    static __device__ __forceinline__ void issue(float (&d)[R], unsigned long long a,    \
                                                 unsigned long long b, int accumulate) { \
      KW_ASM(N, R, "k32.s32.s8.s8", A, B, P, "", "l"(a), "l"(b), "r"(accumulate));       \
    }                                                                                    \
  };
KW_INT8_SHAPE(8, 4, "%4", "%5", "%6")
KW_INT8_SHAPE(16, 8, "%8", "%9", "%10")
KW_INT8_SHAPE(32, 16, "%16", "%17", "%18")
KW_INT8_SHAPE(48, 24, "%24", "%25", "%26")
KW_INT8_SHAPE(64, 32, "%32", "%33", "%34")
KW_INT8_SHAPE(80, 40, "%40", "%41", "%42")
KW_INT8_SHAPE(96, 48, "%48", "%49", "%50")
KW_INT8_SHAPE(112, 56, "%56", "%57", "%58")
KW_INT8_SHAPE(128, 64, "%64", "%65", "%66")
KW_INT8_SHAPE(144, 72, "%72", "%73", "%74")
KW_INT8_SHAPE(160, 80, "%80", "%81", "%82")
KW_INT8_SHAPE(176, 88, "%88", "%89", "%90")
KW_INT8_SHAPE(192, 96, "%96", "%97", "%98")
KW_INT8_SHAPE(208, 104, "%104", "%105", "%106")
KW_INT8_SHAPE(224, 112, "%112", "%113", "%114")
KW_INT8_SHAPE(240, 120, "%120", "%121", "%122")
KW_INT8_SHAPE(256, 128, "%128", "%129", "%130")
#undef KW_INT8_SHAPE
#undef KW_ASM

// Issues d += a * b^T, or d = a * b^T unless `accumulate`. `a` and `b` are descriptors of operands
// of T.
template <typename T, int N, Major MajorA = Major::k, Major MajorB = Major::k>
__device__ __forceinline__ void wgmma_issue(float (&d)[N / 2], unsigned long long a,
                                            unsigned long long b, bool accumulate) {
  static_assert(sizeof(T) == 2 || (MajorA == Major::k && MajorB == Major::k));
  if constexpr (kIsInt8<T>) {
    WgmmaInt8Shape<N>::issue(d, a, b, accumulate);
  } else {
    WgmmaShape<N>::template issue<MajorA, MajorB>(T{}, d, a, b, accumulate);
  }
}

// Issues the product with an operand a in registers, 64 rows by 32 bytes of k. Word i of a thread
// is in row 16 * warp + lane / 4 + 8 * (i % 2) at byte 16 * (i / 2) + 4 * (lane % 4). If elements
// have 16 bits, an accumulator of 16 columns has registers 2 * i and 2 * i + 1 at the same place.
// The registers belong to the hardware as long as d does.
template <typename T, int N, Major MajorB = Major::k>
__device__ __forceinline__ void wgmma_issue(float (&d)[N / 2], const unsigned (&a)[4],
                                            unsigned long long b, bool accumulate) {
  static_assert(sizeof(T) == 2 || MajorB == Major::k);
  WgmmaShape<N>::template issue<MajorB>(T{}, d, a, b, accumulate);
}

}  // namespace kernwright
