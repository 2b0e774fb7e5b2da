#pragma once

#include "python/extension/python.h"
#include <kernwright/c.h>

namespace kernwright::python {

/// As many plans are kept, so that calls of many sizes do not fill the memory.
inline constexpr Py_ssize_t kMostPlans = 1 << 10;

inline constexpr const char* kRunDoc =
    "run(plans, ran, tag, inputs, outs, scalars, stacks=False, patterns={}) -> array | tuple of "
    "arrays | None | False\n\n"
    "Runs the plan that `plans` has for this call, and returns its results; None if there is no "
    "plan, or if an array cannot be read. The dict `ran` gets the plan's kernel under the tag's "
    "first word.\n\n"
    "With `stacks` an input may be a tuple of arrays, which are read as one. If one does not "
    "begin at the end of the one before, nothing is done, and NotImplemented is returned.\n\n"
    "The key is (tag, signature(*inputs, *outs)). A plan is (kernel, outputs): the kernel is "
    "launched on the inputs that are there, on `outs` and on the scalars. An output that is None "
    "is replaced by an array that is made as `outputs` says: (shape, dtype, two axes that are "
    "swapped or None) each. Without a kernel there is nothing to compute.\n\n"
    "If there is no plan, one is made by a pattern: `patterns` has lists under (tag, "
    "kinds(*inputs, *outs)) of (make_pattern(), kernel, outputs), the latter of a plan "
    "that the pattern was made with. If the arrays follow a pattern, and its kernel is not in "
    "memory, False is returned.";
PyObject* run(PyObject* module, PyObject* const* given, Py_ssize_t count);

/// Returns a capsule with a pattern of the service that `capsule` has, for `run`. Returns null with
/// a Python error set; the pattern is then released.
PyObject* give_pattern(kw_pattern* pattern, kw_service* service, PyObject* capsule);

inline constexpr const char* kMakeRoomDoc =
    "make_room(dict)\n\nRemoves the oldest item of a dict with MOST_PLANS items.";
PyObject* make_room(PyObject* module, PyObject* dict);

inline constexpr const char* kSignatureDoc =
    "signature(*arrays) -> bytes\n\n"
    "Equal for arrays of equal dtypes, devices, shapes and strides; None counts as no array, and a "
    "tuple of stacked arrays as one.";
PyObject* signature(PyObject* module, PyObject* const* arrays, Py_ssize_t count);

inline constexpr const char* kKindsDoc =
    "kinds(*arrays) -> bytes\n\n"
    "Equal for arrays of equal dtypes, devices and numbers of dimensions, and stacked ones of "
    "equal "
    "rows.";
PyObject* kinds(PyObject* module, PyObject* const* arrays, Py_ssize_t count);

}  // namespace kernwright::python
