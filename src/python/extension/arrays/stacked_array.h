#pragma once

#include "python/extension/arrays/array_view.h"

namespace kernwright::python {

inline constexpr Py_ssize_t kMostStacked = 4;

enum class Stack { kWhole, kApart, kUnreadable };

/// Reads the arrays of a tuple as one, whose first dimension has the rows of all of them in order.
/// Returns kApart if there is no such array, since one does not begin at the end of the one before
/// or has another kind of rows; kUnreadable with a Python error set, as read_array() sets it.
/// `rows` are the sizes of their first dimensions, for kWhole.
Stack read_stacked(PyObject* arrays, ArrayView& view, std::int64_t (&rows)[kMostStacked],
                   Kept& kept);

}  // namespace kernwright::python
