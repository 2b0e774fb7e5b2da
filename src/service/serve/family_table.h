#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/catalog/catalog.h"
#include "model/operation/bound_problem.h"
#include "service/answer/family.h"
#include "service/serve/sized_kernel.h"
#include "support/mutex.h"
#include <kernwright/problem.h>

namespace kernwright {

/// The families of a service, found by a problem as callers write it, whatever its sizes are, with
/// the kernels of the sizes that were asked for last. Memory does not grow with the number of
/// sizes. Finding allocates nothing, and waits only for others that find the same size.
/// Thread-safe.
class FamilyTable {
  struct Cell;

 public:
  explicit FamilyTable(const Catalog& catalog);

  /// A published family, which lives as long as the table, and a problem's sizes of its free dims.
  struct Found {
    const Family* family;
    FreeSizes sizes;
    Cell* cell;
  };
  /// Returns the family of a problem that is written as one that `learn` saw.
  std::optional<Found> find(const Problem& written) const;

  /// Returns the kernel that is kept for these sizes, or keeps what `make` returns, unless it is
  /// null.
  template <typename Make>
  static std::shared_ptr<const SizedKernel> kernel(const Found& found, const Make& make) {
    Slot& slot = found.cell->slots[slot_of(found.sizes)];
    const MutexLock lock(slot.mutex);
    if (slot.kernel != nullptr && &slot.kernel->family() == found.family &&
        slot.kernel->sizes() == found.sizes) {
      return slot.kernel;
    }
    std::shared_ptr<const SizedKernel> made = make();
    if (made != nullptr) slot.kernel = made;
    return made;
  }

  /// From now on problems that are written as `written`, which means `problem`, but for the sizes
  /// of free dims, find the family of `problem`, once it is published.
  void learn(const Problem& written, const BoundProblem& problem);
  /// Finds the family from now on.
  void publish(std::shared_ptr<const Family> family);
  /// Finds the problem's family no more, until it is published again.
  void forget(const BoundProblem& problem);
  /// Does the same for all of a form, and returns a problem of each.
  std::vector<Problem> forget(const RangedProblem& form);

 private:
  static constexpr std::size_t kSlots = 128;    ///< of a family
  static constexpr std::size_t kPlaces = 8192;  ///< of spellings
  static constexpr std::size_t kMostSpellings = kPlaces / 2;

  struct Slot {
    Mutex mutex;
    std::shared_ptr<const SizedKernel> kernel KW_GUARDED_BY(mutex);
  };
  struct Cell {
    std::atomic<const Family*> family{nullptr};
    std::vector<Slot> slots;  ///< none before the first family is published
  };
  /// A problem as it was written, with the numbers of intervals in place of the sizes of free dims.
  struct Spelling {
    Problem outline;
    Cell* cell;
  };

  static std::size_t slot_of(const FreeSizes& sizes);
  /// Returns the operation of a problem, or null.
  const Operation* operation_of(const Problem& problem) const;
  /// Returns the spelling of a problem, or null, and then the place for it.
  const Spelling* find(const Problem& written, const Operation& operation,
                       std::size_t& place) const;
  Cell& cell(const BoundProblem& problem) KW_REQUIRES(mutex_);

  std::vector<std::pair<std::string_view, const Operation*>> operations_;
  std::array<std::atomic<const Spelling*>, kPlaces> by_hash_{};  ///< each at its hash or behind it
  Mutex mutex_;
  std::deque<Spelling> spellings_ KW_GUARDED_BY(mutex_);  ///< never moved
  std::map<std::string, std::unique_ptr<Cell>> cells_ KW_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<const Family>> kept_ KW_GUARDED_BY(mutex_);
};

}  // namespace kernwright
