#pragma once

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

/// A new array of the framework of `like`, on its device, for torch also of one without the
/// exchange API. `shape` is a sequence, `dtype` one of kernwright's names. Null with a Python error
/// set.
PyObject* allocate_like(PyObject* like, PyObject* shape, const char* dtype);

}  // namespace kernwright::python
