#pragma once

#include "python/extension/python.h"
#include <kernwright/c.h>

namespace kernwright::python {

/// Makes the type `kernwright.Kernel` and adds it to the module. False with a Python error set.
bool add_kernel_type(PyObject* module);

/// A `Kernel` that holds `kernel` and gives it back. `arguments` are the objects of
/// kw_describe()'s "arguments", and `device` is the GPU that the kernel belongs to, -1 where it
/// cannot be launched. Null with a Python error set; `kernel` is then given back.
PyObject* make_kernel(kw_kernel* kernel, const char* problem, PyObject* arguments, int device);

/// A new array of the framework of `like`, on its device: `shape` is a sequence, `dtype` one of
/// kernwright's names. Null with a Python error set.
PyObject* allocate_like(PyObject* like, PyObject* shape, const char* dtype);

}  // namespace kernwright::python
