#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "compile/compile_pool.h"
#include "device/device.h"
#include "model/catalog/catalog.h"
#include <kernwright/result.h>

namespace kernwright {

/// The input kernels of an operation, one of which draws a set.
enum class InputSet { timing, exact, count, nan };

/// The input kernels of an operation, loaded for one problem. The device outlives it.
class InputDrawer {
 public:
  /// Returns null if the operation has none. Errors: they do not compile, or the plan does not fit.
  static Result<std::shared_ptr<const InputDrawer>> make(Device& device, CompilePool& pool,
                                                         const BoundProblem& problem,
                                                         const Catalog& catalog);

  bool has(InputSet set) const { return programs_[static_cast<std::size_t>(set)] != nullptr; }

  /// Draws what input `tensor` holds in a set, to any place. The kernel gets this tensor alone, and
  /// what it leaves out, gaps too, stays 0xFF: a NaN in every format.
  Result<void> draw(InputSet set, const TensorShape& tensor, DevicePointer to,
                    std::uint64_t seed) const;

 private:
  explicit InputDrawer(Device& device) : device_(device) {}

  Device& device_;
  std::vector<TensorShape> tensors_;
  std::vector<double> scalars_;  ///< but for the seed
  std::array<std::shared_ptr<LoadedProgram>, 4> programs_;
};

}  // namespace kernwright
