#pragma once

#include "python/extension/python.h"

namespace kernwright::python {

inline constexpr const char* kRunDoc =
    "run(plans, ran, tag, inputs, outs, scalars, stacks=False) -> array | tuple of arrays | "
    "None\n\n"
    "Runs the plan that `plans` has for this call, and returns its results; None if there is no "
    "plan, or if an array cannot be read. The dict `ran` gets the plan's kernel under the tag's "
    "first word.\n\n"
    "With `stacks` an input may be a tuple of arrays, which are read as one. If one does not "
    "begin at the end of the one before, nothing is done, and NotImplemented is returned.\n\n"
    "The key is (tag, signature(*inputs, *outs)). A plan is (kernel, outputs): the kernel is "
    "launched on the inputs that are there, on `outs` and on the scalars. An output that is None "
    "is replaced by an array that is made as `outputs` says: (shape, dtype, two axes that are "
    "swapped or None) each. Without a kernel there is nothing to compute.";
PyObject* run(PyObject* module, PyObject* const* given, Py_ssize_t count);

inline constexpr const char* kSignatureDoc =
    "signature(*arrays) -> bytes\n\n"
    "Equal for arrays of equal dtypes, devices, shapes and strides; None counts as no array, and a "
    "tuple of stacked arrays as one.";
PyObject* signature(PyObject* module, PyObject* const* arrays, Py_ssize_t count);

}  // namespace kernwright::python
