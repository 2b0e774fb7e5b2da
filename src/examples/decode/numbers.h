#pragma once
// Numbers on the host, 16-bit ones among them, and loops over all cores.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <thread>
#include <vector>

namespace decode {

/// Tokens, lengths or pages, as the GPU has them.
using Ints = std::vector<std::int32_t>;

inline std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

/// A tensor of bf16, by its bits. A bf16 is the upper half of a float.
using Tensor = std::vector<std::uint16_t>;

inline float float_of_bits(std::uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline float to_float(std::uint16_t bf16) {
  return float_of_bits(static_cast<std::uint32_t>(bf16) << 16);
}

/// Rounds to the nearest, and halfway to the even one. A NaN stays a NaN.
inline std::uint16_t to_bf16(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  if (value != value) return static_cast<std::uint16_t>((bits >> 16) | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

/// Returns the value of an IEEE number of 16 bits.
inline float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1f;
  const std::uint32_t fraction = half & 0x3ff;
  if (exponent == 0) {  // fraction * 2^-24
    const float value = static_cast<float>(fraction) / 16777216.0F;
    return sign == 0 ? value : -value;
  }
  const std::uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return float_of_bits(sign | (wide << 23) | (fraction << 13));
}

/// Calls `work(i)` for all i below `count`, on all cores if a call costs `cost` and all of them are
/// worth threads. A cost of 1 is about a nanosecond.
template <typename Work>
void parallel_for(std::int64_t count, std::int64_t cost, const Work& work) {
  constexpr std::int64_t kWorthAThread = 200'000;
  const std::int64_t threads =
      std::min({static_cast<std::int64_t>(std::thread::hardware_concurrency()), count,
                count * cost / kWorthAThread});
  const auto part = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) work(i);
  };
  if (threads < 2) return part(0, count);
  std::vector<std::thread> running;
  std::int64_t begun = 0;
  try {
    running.reserve(at(threads));
    for (; begun < threads; ++begun) {
      running.emplace_back(part, count * begun / threads, count * (begun + 1) / threads);
    }
  } catch (const std::exception& no_thread) {
    static_cast<void>(no_thread);  // this thread does the rest
  }
  part(count * begun / threads, count);
  for (std::thread& thread : running) thread.join();
}

}  // namespace decode
