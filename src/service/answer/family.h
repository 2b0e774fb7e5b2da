#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/layers/tiered_cache.h"
#include "device/cuda/launcher.h"
#include "model/candidate/device_profile.h"
#include "model/candidate/size_check.h"
#include "model/candidate/sized_plan.h"
#include "model/catalog/catalog.h"
#include "model/operation/bound_problem.h"
#include "service/answer/builder.h"
#include "support/mutex.h"
#include "tuner/candidates/shortlist.h"
#include <kernwright/problem.h>

namespace kernwright {

/// The sizes of a family's free dims, on the stack.
class FreeSizes {
 public:
  static constexpr std::size_t kMost = 8;

  void add(std::int64_t size) { values_[count_++] = size; }
  std::span<const std::int64_t> values() const { return {values_.data(), count_}; }
  friend bool operator==(const FreeSizes& a, const FreeSizes& b) {
    return std::equal(a.values().begin(), a.values().end(), b.values().begin(), b.values().end());
  }

 private:
  std::array<std::int64_t, kMost> values_;
  std::size_t count_ = 0;
};

/// Kernels that answer every size of a family, all of them compiled and loaded, and the rule that
/// chooses between them. Immutable.
struct Family {
  struct Kernel {
    SizeCheck check;
    SizedPlan plan;
    GradedRecord record;  ///< as it answers a size of the family
    Artifact artifact;
    std::shared_ptr<const Launcher> launcher;  ///< of the plan's form; null without a GPU
    // A handle may keep the kernel after the service has closed.
    DeviceProfile profile;
    std::shared_ptr<const Catalog> catalog;  ///< keeps the template and the operation
  };
  /// A size with records or decisions of its own.
  struct Point {
    std::vector<std::int64_t> sizes;
    std::optional<std::size_t> own = {};   ///< its measured kernel; without one it is looked up
    std::optional<std::size_t> near = {};  ///< the same, as it answers for near sizes
    bool answers_near = false;             ///< near sizes take `near`, or are looked up without one
  };

  /// Ranges of sizes, and the table that chooses among kernels in them.
  struct Section {
    std::vector<FreeDim> ranges;                          ///< of all free dims
    std::vector<std::size_t> places;                      ///< of the table's dims among them
    std::vector<std::optional<std::size_t>> listed = {};  ///< the kernel of each choice
    DispatchTable table = {};
    bool measured = false;  ///< goes before near sizes
  };

  BoundProblem example;
  std::vector<FreeDim> free = {};
  std::vector<double> distances = {};  ///< of each free dim: the largest ratio of near sizes
  std::vector<std::shared_ptr<const Kernel>> kernels = {};
  std::vector<Section> sections = {};  ///< those that are measured come first
  std::vector<Point> points = {};

  /// Returns the number of the kernel for these sizes, or nullopt if they have to be looked up:
  /// because they are out of the family's range, or have records or decisions of their own, or no
  /// kernel is valid for them. Allocates nothing.
  std::optional<std::size_t> choose(std::span<const std::int64_t> sizes) const;

  /// Returns the kernel that a section chooses, or nullopt if the sizes are out of its ranges, or
  /// none of its kernels is valid.
  std::optional<std::size_t> choose(const Section& section,
                                    std::span<const std::int64_t> sizes) const;

  /// Returns the dims of the family's problem with these sizes.
  Problem::Dims dims(std::span<const std::int64_t> sizes) const;
};

}  // namespace kernwright
