#pragma once

#include "python/extension/python.h"

namespace kernwright::python {

inline constexpr const char* kRunDoc =
    "run(plans, ran, tag, inputs, outs, scalars, stacks=False) -> array | tuple of arrays | "
    "None\n\n"
    "Does what `plans` has for this call, and gives its results; None where it has nothing, or "
    "where "
    "an array cannot be read. The dict `ran` gets the plan's kernel under the tag's first word.\n\n"
    "With `stacks` an input may be a tuple of arrays, which are read as one. Where one does not "
    "begin where the one before ends, NotImplemented is given, and nothing is done.\n\n"
    "The key is (tag, signature(*inputs, *outs)). A plan is (kernel, outputs): the kernel is "
    "launched on the inputs that are there, on `outs` and on the scalars. In the place of an "
    "output "
    "that is None comes an array that is made as `outputs` says: (shape, dtype, two axes that are "
    "swapped or None) each. Without a kernel there is nothing to compute.";
PyObject* run(PyObject* module, PyObject* const* given, Py_ssize_t count);

inline constexpr const char* kSignatureDoc =
    "signature(*arrays) -> bytes\n\n"
    "Equal for arrays of equal dtypes, devices, shapes and strides; None counts as no array, and a "
    "tuple of stacked arrays as one.";
PyObject* signature(PyObject* module, PyObject* const* arrays, Py_ssize_t count);

}  // namespace kernwright::python
