#include "device/program/residency.h"

#include <algorithm>

namespace kernwright {
namespace {

constexpr std::int64_t kWarp = 32;
/// Warps get registers in units of this many (CUDA C++ Programming Guide, "Technical Specifications
/// per Compute Capability").
constexpr std::int64_t kRegisterUnit = 256;

std::int64_t units(std::int64_t amount, std::int64_t unit) { return (amount + unit - 1) / unit; }

std::int64_t registers_of(const BlockDemand& launch) {
  return units(launch.threads, kWarp) * units(launch.registers * kWarp, kRegisterUnit) *
         kRegisterUnit;
}

bool fits(const BlockDemand& ahead, std::int64_t blocks_ahead, const BlockDemand& next,
          std::int64_t blocks_next, const Multiprocessors& gpu) {
  const auto both = [&](std::int64_t of_ahead, std::int64_t of_next) {
    return blocks_ahead * of_ahead + blocks_next * of_next;
  };
  return both(1, 1) <= gpu.blocks && both(ahead.threads, next.threads) <= gpu.threads &&
         both(registers_of(ahead), registers_of(next)) <= gpu.registers &&
         both(ahead.smem_bytes + gpu.reserved_smem_bytes,
              next.smem_bytes + gpu.reserved_smem_bytes) <= gpu.smem_bytes;
}

}  // namespace

bool fits_beside(const BlockDemand& ahead, const BlockDemand& next, const Multiprocessors& gpu) {
  if (gpu.count == 0) return false;
  std::int64_t resident = std::min(units(ahead.blocks, gpu.count), gpu.blocks);
  while (resident > 0 && !fits(ahead, resident, next, 0, gpu)) --resident;
  return fits(ahead, resident, next, 1, gpu);
}

}  // namespace kernwright
