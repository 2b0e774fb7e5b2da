#pragma once

#include <cstdint>

namespace kernwright {

/// The resources of a multiprocessor that the blocks of a launch take.
struct BlockDemand {
  std::int64_t blocks = 0;      ///< of the whole launch
  std::int64_t threads = 0;     ///< of a block
  std::int64_t registers = 0;   ///< of a thread
  std::int64_t smem_bytes = 0;  ///< of a block, static and dynamic
};

/// The resources of each multiprocessor of a GPU.
struct Multiprocessors {
  std::int64_t count = 0;
  std::int64_t blocks = 0;
  std::int64_t threads = 0;
  std::int64_t registers = 0;
  std::int64_t smem_bytes = 0;
  std::int64_t reserved_smem_bytes = 0;  ///< that every block takes in addition
};

/// Returns whether a block of `next` finds room on a multiprocessor beside the blocks of `ahead`.
/// The multiprocessor holds as many blocks of `ahead` as fit and as the launch has for each.
bool fits_beside(const BlockDemand& ahead, const BlockDemand& next, const Multiprocessors& gpu);

}  // namespace kernwright
