#pragma once

#include "python/extension/python.h"

namespace kernwright::python {

inline constexpr const char* kMakeGuardDoc =
    "make_guard(root, dicts, lists, types, attributes) -> Guard\n\n"
    "Records the facts that something was decided from, as they are now.\n\n"
    "root: a dict that the guard does not keep, since the guard is in it\n"
    "dicts: (dict, keys, kinds, whole) each: values of `keys` stay the same objects, values of "
    "`kinds` keep their types; if `whole`, no key comes or goes\n"
    "lists: lists whose items stay the same objects\n"
    "types: (object, its type) each: the object keeps its type and its dict\n"
    "attributes: (object, name, value) each: the attribute stays the same object";
PyObject* make_guard(PyObject* module, PyObject* given);

/// Makes the type `_kernwright.Guard` and adds it to the module. Returns false with a Python error
/// set.
bool add_guard_type(PyObject* module);

}  // namespace kernwright::python
