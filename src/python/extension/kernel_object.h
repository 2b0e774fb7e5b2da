#pragma once

#include <cstdint>

#include "python/extension/launch.h"
#include "python/extension/python.h"
#include <kernwright/c.h>

namespace kernwright::python {

/// Makes the type `_kernwright.KernelHandle` and adds it to the module. Returns false with a Python
/// error set.
bool add_kernel_type(PyObject* module);

/// Makes an object of `type`, KernelHandle or a class that derives from it, that holds `kernel` and
/// releases it. It can be launched once `KernelHandle._expect` has been called with its arguments.
/// Returns null with a Python error set; `kernel` is then released.
PyObject* make_kernel(PyObject* type, kw_kernel* kernel, const char* problem);

/// The layout of a tensor as callers pass it; without dimensions it is left as it is.
struct TensorLayout {
  int ndim;
  const std::int64_t* shape;
  const std::int64_t* strides;
};

/// Makes an object as `like`, a KernelHandle, for a kernel of another size that takes the same
/// arguments, with tensors of these layouts. Returns null without an error if no tensor has one of
/// the layouts, else with a Python error set; `kernel` is then released.
PyObject* make_kernel_like(PyObject* like, kw_kernel* kernel, const TensorLayout* layouts);

/// Returns the kernel of a KernelHandle, null if `object` is not one.
const KernelState* kernel_of(PyObject* object);

}  // namespace kernwright::python
