#pragma once

#include "python/extension/arrays/array_view.h"
#include "python/extension/python.h"

namespace kernwright::python {

/// Makes a new contiguous array of the framework of `like`, which was read as `like_view`, on its
/// device. `shape` is a tuple of integers, `dtype` one of kernwright's names. `view` is set as
/// read_array() would for the new array. Returns null with a Python error set.
Ref make_result(PyObject* like, const ArrayView& like_view, PyObject* shape, const char* dtype,
                ArrayView& view, Kept& kept);

}  // namespace kernwright::python
