#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "python/extension/arrays/array_view.h"
#include "python/extension/arrays/overlap.h"
#include "python/extension/arrays/stream.h"
#include "python/extension/python.h"
#include <kernwright/c.h>

namespace kernwright::python {

inline constexpr std::size_t kMostArguments = 32;

/// The argument that a kernel takes at one position.
struct Expected {
  std::string name;
  std::string dtype_text;
  std::string in_place;  ///< for an output: the input whose memory it may be; empty: none
  dlpack::DataType dtype{};
  bool scalar = false, output = false;
  int ndim = 0;
  std::int64_t extent[kMostDims] = {};
  std::int64_t strides[kMostDims] = {};  ///< elements
  Footprint footprint;
};

/// A loaded kernel with its expected arguments. Owns `handle`.
struct KernelState {
  kw_kernel* handle = nullptr;
  std::string problem;
  std::vector<Expected> arguments;
  std::size_t tensors = 0;  ///< the first of the arguments; scalars follow
  std::size_t workspace_bytes = 0;
  int device = -1;  ///< -1 if it cannot be launched

  KernelState() = default;
  KernelState(const KernelState&) = delete;
  KernelState& operator=(const KernelState&) = delete;
  ~KernelState() { kw_release(handle); }
};

/// One tensor of a launch.
struct Tensor {
  PyObject* array;  ///< borrowed
  const ArrayView* view;
  bool is_new;  ///< made for this launch, so nobody has saved it
};

/// Finds the bytes of a tensor. Returns false, without a Python error, if no tensor has such sizes
/// or strides.
bool find_footprint(Expected& expected);

/// The steps of a launch, for other ways of launching. Those that return bool return false with a
/// Python error set, kernwright.Error if something does not fit.

/// Returns true if a call has as many arguments as the kernel takes.
bool count_fits(const KernelState& kernel, std::size_t count);

/// Returns true if the kernel may read the memory of an array at this place, and write it if it is
/// an output.
bool may_use(const KernelState& kernel, const Expected& expected, const ArrayView& view);

/// Returns true if an array fits the kernel's argument at this place.
bool fits(const KernelState& kernel, const Expected& expected, const ArrayView& view);

/// Returns true if no output overlaps another tensor, since kernels read and write in any order. An
/// output that is computed in place may begin at the address of its input. Tensors whose address is
/// null are not looked at.
bool apart(const KernelState& kernel, const void* const* addresses);

/// Returns true if the kernel's service has a GPU.
bool can_launch(const KernelState& kernel);

/// Makes all of these checks on the tensors of a call, whose number is right, and returns their
/// addresses.
bool check_tensors(const KernelState& kernel, const Tensor* tensors, const void** addresses);

/// Returns the framework of the first tensor whose framework says what its current stream is.
Framework framework_of(const KernelState& kernel, const Tensor* tensors);

/// Tells the frameworks that want to know it which stream is about to use their arrays.
bool announce(const KernelState& kernel, const Tensor* tensors, const void* stream, Kept& kept);

/// Returns the tensors of PyTorch that a launch writes, for `mark_written`. Null if there are none,
/// and with a Python error set.
Ref written_tensors(const KernelState& kernel, const Tensor* tensors);

/// Launches the kernel on its tensors and scalars, whose numbers are right. `given_stream` may be
/// null or None. Objects that exports of arrays hold are added to `kept`.
bool launch(const KernelState& kernel, const Tensor* tensors, const double* scalars,
            std::size_t scalar_count, PyObject* given_stream, Kept& kept);

/// Allocates memory of the caller's framework, so that it comes from its pool, and in a capture
/// from the graph's. Returns null with a Python error set.
dlpack::VersionedTensor* allocate(const dlpack::ExchangeApi& api, dlpack::Tensor prototype);

}  // namespace kernwright::python
