#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "python/extension/array_view.h"
#include "python/extension/overlap.h"
#include "python/extension/python.h"
#include <kernwright/c.h>

namespace kernwright::python {

inline constexpr std::size_t kMostArguments = 32;

/// What a kernel takes at one position.
struct Expected {
  std::string name;
  std::string dtype_text;
  dlpack::DataType dtype{};
  bool scalar = false, output = false;
  int ndim = 0;
  std::int64_t extent[kMostDims] = {};
  std::int64_t strides[kMostDims] = {};  ///< elements
  Footprint footprint;
};

/// A loaded kernel with what it takes. Owns `handle`.
struct KernelState {
  kw_kernel* handle = nullptr;
  std::string problem;
  std::vector<Expected> arguments;
  std::size_t tensors = 0;  ///< the first of the arguments; scalars follow
  std::size_t workspace_bytes = 0;
  int device = -1;  ///< -1 where it cannot be launched

  KernelState() = default;
  KernelState(const KernelState&) = delete;
  KernelState& operator=(const KernelState&) = delete;
  ~KernelState() { kw_release(handle); }
};

/// One tensor of a launch.
struct Tensor {
  PyObject* array;  ///< borrowed
  const ArrayView* view;
};

/// Launches the kernel on its tensors and scalars, whose numbers are right. `given_stream` may be
/// null or None. Returns false with a Python error set, kernwright.Error where something does not
/// fit.
bool launch(const KernelState& kernel, const Tensor* tensors, const double* scalars,
            std::size_t scalar_count, PyObject* given_stream);

/// Whether a call has as many arguments as the kernel takes. False with kernwright.Error set.
bool count_fits(const KernelState& kernel, std::size_t count);

/// Memory of the caller's framework, so that it comes from its pool, and in a capture from the
/// graph's. Null with a Python error set.
dlpack::VersionedTensor* allocate(const dlpack::ExchangeApi& api, dlpack::Tensor prototype);

}  // namespace kernwright::python
