#pragma once

#include "python/extension/launch.h"

namespace kernwright::python {

/// The arguments of a call as a kernel takes them: tensors in its order, then scalars. They borrow
/// from the caller's arguments.
struct CallArguments {
  Tensor tensors[kMostArguments];
  double scalars[kMostArguments];
  std::size_t scalar_count;
  Kept kept;  ///< what exports of the arrays hold

  CallArguments() {}  // NOLINT(modernize-use-equals-default): leaves the members alone

  /// Returns false with kernwright.Error set, which names the argument that is not an array or a
  /// number.
  bool read(const KernelState& kernel, PyObject* const* given, std::size_t count);

 private:
  ViewRoom<kMostArguments> views_;
};

}  // namespace kernwright::python
