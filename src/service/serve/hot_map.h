#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory_resource>
#include <tbb/concurrent_unordered_map.h>
#include <utility>

#include "launch/loaded_kernel.h"
#include "support/mutex.h"
#include <kernwright/problem.h>

namespace kernwright {

/// Maps problems, as callers wrote them and as normalised, to the kernel that is served now. A
/// kernel is found without a lock: nodes are never erased, and a new winner is swapped in place for
/// every spelling at once. Thread-safe.
class HotMap {
 public:
  /// Returns the kernel of the problem, or null if nothing was published.
  const LoadedKernel* find(const Problem& problem) const {
    const auto found = slots_.find(problem);
    return found == slots_.end() ? nullptr : found->second->load(std::memory_order_acquire);
  }

  void publish(const Problem& normalized, const LoadedKernel* kernel) {
    slot(normalized)->store(kernel, std::memory_order_release);
  }

  /// From now on `written` finds what `normalized` finds.
  void alias(const Problem& written, const Problem& normalized) {
    slots_.emplace(written, slot(normalized));
  }

 private:
  using Slot = std::atomic<const LoadedKernel*>;

  struct Hash {
    std::size_t operator()(const Problem& problem) const noexcept;
  };

  Slot* slot(const Problem& normalized);

  // TBB's own allocator is a library of its own, loaded and set up for the first node.
  tbb::concurrent_unordered_map<Problem, Slot*, Hash, std::equal_to<Problem>,
                                std::pmr::polymorphic_allocator<std::pair<const Problem, Slot*>>>
      slots_;
  Mutex made_mutex_;
  std::deque<Slot> made_ KW_GUARDED_BY(made_mutex_);  ///< never moved: `slots_` points at them
};

}  // namespace kernwright
