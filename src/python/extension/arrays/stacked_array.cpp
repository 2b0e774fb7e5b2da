#include "python/extension/arrays/stacked_array.h"

#include <algorithm>

namespace kernwright::python {
namespace {

/// Returns true if `next` has the layout of `first`, except for its number of rows.
bool is_alike(const ArrayView& first, const ArrayView& next) {
  return next.ndim == first.ndim && next.dtype == first.dtype &&
         next.device.type == first.device.type && next.device.id == first.device.id &&
         std::equal(next.shape + 1, next.shape + next.ndim, first.shape + 1) &&
         std::equal(next.strides, next.strides + next.ndim, first.strides);
}

std::int64_t bytes_of_rows(const ArrayView& view) {
  return view.shape[0] * view.strides[0] * view.dtype.bits * view.dtype.lanes / 8;
}

}  // namespace

Stack read_stacked(PyObject* arrays, ArrayView& view, std::int64_t (&rows)[kMostStacked],
                   Kept& kept) {
  const Py_ssize_t count = PyTuple_Size(arrays);
  if (count < 1 || count > kMostStacked) {
    PyErr_Format(PyExc_TypeError, "a tuple of %zd arrays, and 1 to %zd expected", count,
                 kMostStacked);
    return Stack::kUnreadable;
  }
  if (!read_array(PyTuple_GetItem(arrays, 0), view, kept)) return Stack::kUnreadable;
  bool whole = view.ndim > 0 && view.dtype.bits > 0;
  rows[0] = whole ? view.shape[0] : 0;
  std::int64_t all = rows[0];
  std::int64_t bytes = whole ? bytes_of_rows(view) : 0;
  for (Py_ssize_t i = 1; i < count; ++i) {
    ArrayView next;
    if (!read_array(PyTuple_GetItem(arrays, i), next, kept)) return Stack::kUnreadable;
    whole = whole && is_alike(view, next) && next.data == static_cast<char*>(view.data) + bytes;
    if (!whole) continue;
    all += rows[i] = next.shape[0];
    bytes += bytes_of_rows(next);
  }
  if (!whole) return Stack::kApart;
  view.shape[0] = all;
  return Stack::kWhole;
}

}  // namespace kernwright::python
