#pragma once

#include "python/extension/python.h"

namespace kernwright::python {

/// Raises kernwright.Error of this problem, "" where there is none, for the printf-like reason.
/// Returns null.
PyObject* raise(const char* problem, const char* format, ...) __attribute__((format(printf, 2, 3)));

/// Raises kernwright.Error of this problem in place of the Python error that is set, with its text
/// behind `what`. Returns null.
PyObject* raise_current(const char* problem, const char* what);

/// The class that `raise` raises: `kernwright.Error`, a RuntimeError with `problem` and `reason`.
/// Null with a Python error set where it could not be made.
PyObject* error_class();

}  // namespace kernwright::python
