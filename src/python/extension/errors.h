#pragma once

#include <string>

#include "python/extension/python.h"

namespace kernwright::python {

/// Raises kernwright.Error of this problem, "" where there is none, for the printf-like reason, a
/// refusal of what the caller gave. Returns null.
PyObject* raise(const char* problem, const char* format, ...) __attribute__((format(printf, 2, 3)));

/// Why a call of the library failed.
struct Failure {
  std::string reason;
  bool is_refusal = true;

  /// That of the calling thread's last call, which failed.
  static Failure last();
  /// Raises kernwright.Error of this problem. Returns null.
  PyObject* raise(const char* problem) const;
};

/// Raises kernwright.Error of this problem in place of the Python error that is set, with its text
/// behind `what`. Returns null.
PyObject* raise_current(const char* problem, const char* what);

/// The class that `raise` raises: `kernwright.Error`, a RuntimeError with `problem` and `reason`.
/// Null with a Python error set where it could not be made.
PyObject* error_class();

/// A str of bytes that may come from anywhere: what is not UTF-8 in them is replaced. Null with a
/// Python error set.
PyObject* text_from(const char* bytes);

/// The characters of a str in UTF-8, lone surrogates as \udcff. Returns false with a Python error
/// set where `text` is no str.
bool read_text(PyObject* text, std::string& characters);

}  // namespace kernwright::python
