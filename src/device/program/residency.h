#pragma once

#include <cstdint>

namespace kernwright {

/// What the blocks of a launch take of a multiprocessor.
struct BlockDemand {
  std::int64_t blocks = 0;      ///< of the whole launch
  std::int64_t threads = 0;     ///< of a block
  std::int64_t registers = 0;   ///< of a thread
  std::int64_t smem_bytes = 0;  ///< of a block, static and dynamic
};

/// What the multiprocessors of a GPU have, each of them.
struct Multiprocessors {
  std::int64_t count = 0;
  std::int64_t blocks = 0;
  std::int64_t threads = 0;
  std::int64_t registers = 0;
  std::int64_t smem_bytes = 0;
  std::int64_t reserved_smem_bytes = 0;  ///< that every block takes besides
};

/// Whether a block of `next` finds room on a multiprocessor beside the blocks of `ahead`, of which
/// as many lie there as fit and as the launch has for each.
bool fits_beside(const BlockDemand& ahead, const BlockDemand& next, const Multiprocessors& gpu);

}  // namespace kernwright
