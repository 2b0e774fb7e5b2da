#pragma once

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

/// Returns the kernel of a KernelHandle, null if `object` is not one.
const KernelState* kernel_of(PyObject* object);

}  // namespace kernwright::python
