#pragma once

#include <string>

#include "python/extension/python.h"

namespace kernwright::python {

/// Raises kernwright.Error of this problem, "" if there is none, for the printf-like reason, a
/// refusal of what the caller passed. Returns null.
PyObject* raise(const char* problem, const char* format, ...) __attribute__((format(printf, 2, 3)));

/// Why a call of the library failed.
struct Failure {
  std::string reason;
  bool is_refusal = true;

  /// Returns the failure of the calling thread's last call.
  static Failure last();
  /// Raises kernwright.Error of this problem. Returns null.
  PyObject* raise(const char* problem) const;
};

/// Raises kernwright.Error of this problem in place of the Python error that is set, with its text
/// behind `what`. Returns null.
PyObject* raise_current(const char* problem, const char* what);

/// Returns the class that `raise` raises: `kernwright.Error`, a RuntimeError with `problem` and
/// `reason`. Null with a Python error set if it could not be made.
PyObject* error_class();

/// Makes a str of bytes that may come from anywhere: bytes that are not UTF-8 are replaced. Null
/// with a Python error set.
PyObject* text_from(const char* bytes);

/// Reads the characters of a str in UTF-8, lone surrogates as \udcff. Returns false with a Python
/// error set if `text` is not a str.
bool read_text(PyObject* text, std::string& characters);

}  // namespace kernwright::python
