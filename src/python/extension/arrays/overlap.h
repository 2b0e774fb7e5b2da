#pragma once

#include <cstdint>
#include <numeric>

namespace kernwright::python {

/// The places of a tensor's bytes from its first on: runs of `run` bytes whose distances are
/// multiples of `pitch`, 0 if there is one run, all within `bytes`.
struct Footprint {
  std::uint64_t bytes = 0;
  std::uint64_t run = 0;
  std::uint64_t pitch = 0;
};

/// Returns true if two tensors that begin at these addresses may share a byte. Interleaved columns
/// of one matrix do not.
inline bool may_overlap(std::uintptr_t a, const Footprint& of_a, std::uintptr_t b,
                        const Footprint& of_b) {
  if (of_a.bytes == 0 || of_b.bytes == 0) return false;
  if (a + of_a.bytes <= b || b + of_b.bytes <= a) return false;
  const std::uint64_t pitch = std::gcd(of_a.pitch, of_b.pitch);
  if (pitch == 0) return true;
  const std::uint64_t offset = b >= a ? (b - a) % pitch : pitch - 1 - (a - b - 1) % pitch;
  return offset < of_a.run || offset + of_b.run > pitch;
}

}  // namespace kernwright::python
