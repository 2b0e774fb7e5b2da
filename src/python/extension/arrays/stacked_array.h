#pragma once

#include "python/extension/arrays/array_view.h"

namespace kernwright::python {

inline constexpr Py_ssize_t kMostStacked = 4;

enum class Stack { kWhole, kApart, kUnreadable };

/// Reads the arrays of a tuple as one, whose first dimension has the rows of all of them in order.
/// kApart where each does not begin where the one before ends, with the same row after row: then
/// there is no such array. kUnreadable with a Python error set, as read_array() sets it. `rows` are
/// the sizes of their first dimensions, of kWhole.
Stack read_stacked(PyObject* arrays, ArrayView& view, std::int64_t (&rows)[kMostStacked],
                   Kept& kept);

}  // namespace kernwright::python
