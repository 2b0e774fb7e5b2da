#include "python/extension/errors.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>

#include <kernwright/c.h>
#include <kernwright/visible.h>

namespace kernwright::python {
namespace {

constexpr const char* kDoc =
    "A problem that cannot be answered, or a call that does not fit its problem.\n\n"
    "problem: the problem in text form, '' if there is none\n"
    "reason: what is wrong, with the name of the thing and both values\n"
    "is_refusal: true if the caller's arguments are wrong, such as a problem that an operation\n"
    "    does not take; false if something failed";

std::string formatted(const char* format, std::va_list arguments) {
  std::va_list again;
  va_copy(again, arguments);
  const int length = std::vsnprintf(nullptr, 0, format, again);
  va_end(again);
  if (length < 0) return format;
  std::string text(static_cast<std::size_t>(length), '\0');
  std::vsnprintf(text.data(), text.size() + 1, format, arguments);
  return text;
}

}  // namespace

PyObject* error_class() {
  static PyObject* made = nullptr;  // guarded by the GIL; lives as long as the process
  if (made == nullptr) {
    const Ref defaults(
        Py_BuildValue("{sssssO}", "problem", "", "reason", "", "is_refusal", Py_False));
    if (!defaults) return nullptr;
    made = PyErr_NewExceptionWithDoc("kernwright.Error", kDoc, PyExc_RuntimeError, defaults.get());
  }
  return made;
}

PyObject* raise(const char* problem, const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  const std::string reason = visible_lines(formatted(format, arguments));
  va_end(arguments);
  return Failure{reason, true}.raise(problem);
}

Failure Failure::last() { return {kw_last_error(), kw_last_error_code() == KW_INVALID_ARGUMENT}; }

PyObject* Failure::raise(const char* problem) const {
  PyObject* type = error_class();
  if (type == nullptr) return nullptr;
  const std::string text = visible_lines(problem);
  // Some reasons of the library begin with the problem themselves.
  const std::string message =
      text.empty() || reason.starts_with(text) ? reason : text + ": " + reason;
  const Ref message_text(text_from(message.c_str()));
  const Ref problem_text(text_from(problem));
  const Ref reason_text(text_from(reason.c_str()));
  if (!message_text || !problem_text || !reason_text) return nullptr;
  const Ref error(PyObject_CallFunctionObjArgs(type, message_text.get(), nullptr));
  if (!error || PyObject_SetAttrString(error.get(), "problem", problem_text.get()) != 0 ||
      PyObject_SetAttrString(error.get(), "reason", reason_text.get()) != 0 ||
      PyObject_SetAttrString(error.get(), "is_refusal", is_refusal ? Py_True : Py_False) != 0) {
    return nullptr;
  }
  PyErr_SetObject(type, error.get());
  return nullptr;
}

PyObject* raise_current(const char* problem, const char* what) {
  constexpr const char* kUnknown = "cannot be read";
  if (PyErr_Occurred() == nullptr) return raise(problem, "%s: %s", what, kUnknown);
  // An error that is not about the argument, such as KeyboardInterrupt, stays as it is.
  if (PyErr_ExceptionMatches(PyExc_Exception) == 0) return nullptr;
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  const Ref owned_type(type), owned_value(value), owned_trace(trace);
  const Ref text(value == nullptr ? nullptr : PyObject_Str(value));
  std::string reason;
  if (!text || !read_text(text.get(), reason)) {
    if (PyErr_Occurred() != nullptr && PyErr_ExceptionMatches(PyExc_Exception) == 0) return nullptr;
    PyErr_Clear();
    reason = kUnknown;
  }
  return raise(problem, "%s: %s", what, reason.c_str());
}

PyObject* text_from(const char* bytes) {
  return PyUnicode_DecodeUTF8(bytes, static_cast<Py_ssize_t>(std::strlen(bytes)), "replace");
}

bool read_text(PyObject* text, std::string& characters) {
  const Ref bytes(PyUnicode_AsEncodedString(text, "utf-8", "backslashreplace"));
  char* data = nullptr;
  Py_ssize_t size = 0;
  if (!bytes || PyBytes_AsStringAndSize(bytes.get(), &data, &size) != 0) return false;
  characters.assign(data, static_cast<std::size_t>(size));
  return true;
}

}  // namespace kernwright::python
