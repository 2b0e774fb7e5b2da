#pragma once

#include <cstddef>

#include "python/extension/python.h"

/// PyTorch's facts about its tensors beside memory and layout. Nothing here imports it.
namespace kernwright::python {

/// Returns true if `type` is PyTorch's tensor class or derives from it.
bool is_tensor_type(PyTypeObject* type);

/// Returns true if a kernel that reads the memory of the tensor reads its values. They differ in
/// views that negate when they are read. Returns false with a Python error set.
bool holds_values(PyObject* tensor);

/// Returns true if nobody expects a derivative of the results from these tensors. Returns false
/// with kernwright.Error set, which names `operation`, a str, and its twin in kernwright.torch.
bool need_no_derivative(PyObject* const* tensors, std::size_t count, PyObject* operation);

/// Tells autograd that the tensors of a tuple were written, as it is told of operations in place:
/// a backward that saved one of them then raises. Returns false with a Python error set.
bool mark_written(PyObject* tensors);

}  // namespace kernwright::python
