#pragma once

#include "python/extension/launch.h"
#include "python/extension/python.h"
#include <kernwright/c.h>

namespace kernwright::python {

/// Makes the type `_kernwright.KernelHandle` and adds it to the module. False with a Python error
/// set.
bool add_kernel_type(PyObject* module);

/// An object of `type`, KernelHandle or what derives from it, that holds `kernel` and gives it
/// back. It can be launched once `KernelHandle._expect` has said what it takes. Null with a Python
/// error set; `kernel` is then given back.
PyObject* make_kernel(PyObject* type, kw_kernel* kernel, const char* problem);

/// The kernel of a KernelHandle, null where `object` is none.
const KernelState* kernel_of(PyObject* object);

}  // namespace kernwright::python
