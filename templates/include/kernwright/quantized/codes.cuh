#pragma once
// Codes of weights, as numbers. Packed weights are blocks of 64 rows x 64 columns of k, in which a
// lane's words are A fragments of mma.sync (mma.cuh): warp w has rows 16 w to 16 w + 15, and the
// eight values of a lane in 16 of k are its four words' pairs one after another. With 4 bits these
// are a word, whose nibbles hold the first values of the four pairs and then the second ones, or
// the same as mxfp4_word.cuh packs it; with 8 bits the bytes of two words. The scales and zero
// points of a row of blocks are [groups, 64], with rows g and g + 8 of a warp side by side.

#include <kernwright/config.cuh>
#include <kernwright/math/vector.cuh>
#include <kernwright/ptx/lop3.cuh>

namespace kernwright {

constexpr bool kIntegerCodes =
    config::weights == config::weights_int4 || config::weights == config::weights_int8;
constexpr bool kExponents = config::weights == config::weights_mxfp4;
constexpr int kCodeBits = config::weights == config::weights_int4 || kExponents ? 4 : 8;
constexpr bool kZeros = config::zero == config::zero_code;
constexpr int kNoZero = kCodeBits == 4 ? 8 : 128;  // the zero point of codes without any
constexpr bool kPackedLayout = config::is_packed;
constexpr int kBlockBytes = 512 * kCodeBits;  // of 64 x 64 codes
constexpr int kVectors = kCodeBits / 4;       // of 16 bytes that a lane has of 16 rows of a block

// Returns a scale as a number: a byte is an exponent, 2^(x - 127), or NaN.
__device__ __forceinline__ float scale_value(unsigned char x) {
  return __uint_as_float(x == 255 ? 0x7fffffffu : x == 0 ? 0x00400000u : unsigned{x} << 23);
}
template <typename T>
__device__ __forceinline__ float scale_value(T x) {
  return to_float(x);
}

// Returns the number of a code, less its zero point.
__device__ __forceinline__ float code_value(unsigned code, float zero) {
  if constexpr (kIntegerCodes) return static_cast<float>(static_cast<int>(code)) - zero;
  if constexpr (kExponents) {  // the bits behind the exponent's of a number 2^126 too small
    return __uint_as_float((code & 7) << 22 | (code & 8) << 28) * 0x1p126f;
  }
  return to_float(fp8_e4m3{static_cast<unsigned char>(code)});
}

template <typename T>
constexpr bool kIsHalf = false;
template <>
constexpr bool kIsHalf<fp16> = true;

// Bytes do not fit beside the exponent of a bf16: they are joined to fp32.
template <typename T>
constexpr bool kJoinsWords = kCodeBits == 8 && !kIsHalf<T>;

// Returns the zero point of two neighbours as decode_pairs() takes it off: negative, and with the
// number that the bits of codes are joined to.
template <typename T>
__device__ __forceinline__ unsigned zero_word(int zero) {
  if constexpr (kJoinsWords<T>) return __float_as_uint(static_cast<float>(-8388608 - zero));
  const auto number = static_cast<float>(-(kIsHalf<T> ? 1024 : 128) - zero);
  return pack_pair<T>(number, number);
}

// Returns pair `j` of a word of mxfp4 as bits of numbers that are 2^126 too small: a sign, and a
// size as the last bits of an exponent and the first one of a fraction.
__device__ __forceinline__ unsigned small_pair(unsigned word, int j) {
  constexpr unsigned kSign = 0x80008000, kSize = 0x01c001c0;
  if (j < 2) return word << 3 * j & (kSign | kSize);
  return and_or(j == 2 ? word << 6 : word >> 3, kSize, word << (j - 1) & kSign);
}
constexpr unsigned kSmallPower = 0x7e807e80;  // 2^126, twice

// Sets `pairs` to the numbers of a lane's codes in 16 of k, exactly, less the zero points of rows g
// and g + 8.
template <typename T>
__device__ __forceinline__ void decode_pairs(unsigned (&pairs)[4], const Packed<kCodeBits>& codes,
                                             const unsigned (&zeros)[2]) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const unsigned word = codes.word[kCodeBits == 4 ? 0 : j / 2];
    if constexpr (kExponents) {
      static_assert(!kIsHalf<T>);
      pairs[j] = multiply_words<T>(small_pair(word, j), kSmallPower);
    } else if constexpr (kCodeBits == 4) {
      const unsigned joined =
          and_or(word >> 4 * j, 0x000f000f, kIsHalf<T> ? 0x64006400 : 0x43004300);
      pairs[j] = add_words<T>(joined, zeros[j % 2]);
    } else if constexpr (!kIntegerCodes) {
      unsigned low, high;
      widen_e4m3(word, low, high);
      pairs[j] = j % 2 == 0 ? low : high;
      if constexpr (!kIsHalf<T>) {
        const float2 pair = unpack_pair<fp16>(pairs[j]);
        pairs[j] = pack_pair<T>(pair.x, pair.y);
      }
    } else if constexpr (kIsHalf<T>) {
      const unsigned joined = __byte_perm(word, 0x64646464, j % 2 == 0 ? 0x4140 : 0x4342);
      pairs[j] = add_words<T>(joined, zeros[j % 2]);
    } else {
      const float zero = __uint_as_float(zeros[j % 2]);
      const unsigned first = __byte_perm(word, 0x4b000000, 0x7440 + j % 2 * 2);
      const unsigned second = __byte_perm(word, 0x4b000000, 0x7441 + j % 2 * 2);
      pairs[j] = pack_pair<T>(__uint_as_float(first) + zero, __uint_as_float(second) + zero);
    }
  }
}

// Sums that are scaled after a group take numbers that cost less: times kUnit, and those of rows
// g + 8 joined to those of rows g, as 16 times themselves plus these. A byte is then a number of
// both rows, and one of 16 bits that is small enough: its value as bits is linear in the byte, as
// the least exponent is that of subnormal numbers.
constexpr bool kJoinsRows = kCodeBits == 4 && kIntegerCodes;
template <typename T>
constexpr bool kIsSmall = kJoinsRows || (kIntegerCodes && kJoinsWords<T>);
template <typename T>
constexpr float kUnit = !kIsSmall<T> ? 1
                        : kIsHalf<T> ? 0x1p-9f
                                     : 0x1p-6f;

// Returns what the separated sums of rows g (half 0) or g + 8 are to be multiplied by.
template <typename T>
__device__ constexpr float sum_factor(int half) {
  return 1 / kUnit<T> / (kJoinsRows && half == 1 ? 16 : 1);
}

// Returns sum i of a lane, without that of row g which the one of row g + 8 was joined to.
template <int kCount>
__device__ __forceinline__ float separated(const float (&sums)[kCount], int i) {
  return kJoinsRows && i / 2 % 2 == 1 ? sums[i] - sums[i - 2] : sums[i];
}

// Sets `words` to the zero points of rows g and g + 8 as decode_small_pairs() takes them off.
template <typename T>
__device__ __forceinline__ void small_zero_words(unsigned (&words)[2], int zero, int upper_zero) {
  if constexpr (kIsSmall<T>) {
    const float lower = static_cast<float>(-zero) * kUnit<T>;
    const float upper = static_cast<float>(-upper_zero - (kJoinsRows ? 15 * upper_zero + zero : 0));
    words[0] = pack_pair<T>(lower, lower);
    words[1] = pack_pair<T>(upper * kUnit<T>, upper * kUnit<T>);
  } else {
    words[0] = zero_word<T>(zero);
    words[1] = zero_word<T>(upper_zero);
  }
}

// Does what decode_pairs() does, for sums that are scaled after a group.
template <typename T>
__device__ __forceinline__ void decode_small_pairs(unsigned (&pairs)[4],
                                                   const Packed<kCodeBits>& codes,
                                                   const unsigned (&zeros)[2]) {
  if constexpr (kIsSmall<T>) {
    // kUnit over the least number.
    constexpr unsigned kPower = kIsHalf<T> ? 0x78007800 : 0x7f007f00;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      unsigned bits;
      if constexpr (kCodeBits == 8) {
        bits = __byte_perm(codes.word[j / 2], 0, j % 2 == 0 ? 0x4140 : 0x4342);
      } else {
        const unsigned word = codes.word[0];
        bits = j < 2 ? word & 0x00ff00ff : __byte_perm(word, 0, 0x4341);
        if (j % 2 == 0) bits &= 0x000f000f;
      }
      pairs[j] = multiply_add_words<T>(bits, kPower, zeros[j % 2]);
    }
  } else {
    decode_pairs<T>(pairs, codes, zeros);
  }
}

// Returns the lane's codes in step `step` of 16 columns from its vectors of a block.
__device__ __forceinline__ Packed<kCodeBits> codes_of(const Packed<16> (&vectors)[kVectors],
                                                      int step) {
  Packed<kCodeBits> codes;
#pragma unroll
  for (int i = 0; i < kCodeBits / 4; ++i) {
    codes.word[i] = vectors[step * kVectors / 4].word[step * (kCodeBits / 4) % 4 + i];
  }
  return codes;
}

// Multiplies two numbers of decode_pairs() by their scale, each rounded once.
template <typename T>
__device__ __forceinline__ unsigned scale_pair(unsigned pair, float scale) {
  if constexpr (kExponents || config::scale == config::dtype) {
    return multiply_words<T>(pair, pack_pair<T>(scale, scale));
  }
  const float2 numbers = unpack_pair<T>(pair);
  return pack_pair<T>(numbers.x * scale, numbers.y * scale);
}

}  // namespace kernwright
