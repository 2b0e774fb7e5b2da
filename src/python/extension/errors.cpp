#include "python/extension/errors.h"

#include <cstdarg>
#include <cstdio>
#include <string>

#include <kernwright/visible.h>

namespace kernwright::python {
namespace {

constexpr const char* kDoc =
    "A problem that cannot be answered, or a call that does not fit its problem.\n\n"
    "problem: the problem in text form, '' where there is none\n"
    "reason: what is wrong, with the name of the thing and both values";

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
    made = PyErr_NewExceptionWithDoc("kernwright.Error", kDoc, PyExc_RuntimeError, nullptr);
  }
  return made;
}

PyObject* raise(const char* problem, const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  const std::string reason = visible_lines(formatted(format, arguments));
  va_end(arguments);
  PyObject* type = error_class();
  if (type == nullptr) return nullptr;
  const std::string text = visible_lines(problem);
  // Some reasons of the library begin with the problem themselves.
  const std::string message =
      text.empty() || reason.starts_with(text) ? reason : text + ": " + reason;
  const Ref error(PyObject_CallFunction(type, "s", message.c_str()));
  const Ref problem_text(PyUnicode_FromString(problem));
  const Ref reason_text(PyUnicode_FromString(reason.c_str()));
  if (!error || !problem_text || !reason_text ||
      PyObject_SetAttrString(error.get(), "problem", problem_text.get()) != 0 ||
      PyObject_SetAttrString(error.get(), "reason", reason_text.get()) != 0) {
    return nullptr;
  }
  PyErr_SetObject(type, error.get());
  return nullptr;
}

PyObject* raise_current(const char* problem, const char* what) {
  // What is not about the argument, such as KeyboardInterrupt, stays what it is.
  if (PyErr_ExceptionMatches(PyExc_Exception) == 0) return nullptr;
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  const Ref owned_type(type), owned_value(value), owned_trace(trace);
  const Ref text(value == nullptr ? nullptr : PyObject_Str(value));
  const char* reason = text ? PyUnicode_AsUTF8AndSize(text.get(), nullptr) : nullptr;
  if (reason == nullptr) PyErr_Clear();
  return raise(problem, "%s: %s", what, reason == nullptr ? "cannot be read" : reason);
}

}  // namespace kernwright::python
