#pragma once

#include "python/extension/python.h"

namespace kernwright::python {

/// Makes the types `_kernwright.BakedHandle` and `_kernwright.ChainHandle` and adds them to the
/// module. False with a Python error set.
bool add_baked_type(PyObject* module);
bool add_chain_type(PyObject* module);

inline constexpr const char* kBakeDoc =
    "bake(type, kernel, *tensors_and_scalars) -> type\n\n"
    "kw_bake(): an object of a class of BakedHandle.";
PyObject* bake(PyObject* module, PyObject* const* given, Py_ssize_t count);

inline constexpr const char* kBuildChainDoc =
    "build_chain(type, parameters, buffers, steps) -> type\n\n"
    "kw_chain_build(): an object of a class of ChainHandle. `parameters` is a list of arrays, "
    "`buffers` one of sizes in bytes. A step is a list of kernels and a tuple of arguments, each "
    "an "
    "array, a number, or a slot: a tuple (is_buffer, index, offset_bytes).";
PyObject* build_chain(PyObject* module, PyObject* given);

}  // namespace kernwright::python
