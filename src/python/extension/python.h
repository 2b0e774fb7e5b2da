#pragma once

// The limited API of Python 3.10, so that one binary serves every later Python.
#define Py_LIMITED_API 0x030A0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <exception>
#include <new>
#include <utility>

namespace kernwright::python {

/// A reference that is given back at the end of its scope. Null where a call failed.
class Ref {
 public:
  Ref() = default;
  explicit Ref(PyObject* owned) : object_(owned) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { Py_XDECREF(object_); }

  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

/// The attribute, or null without an error where there is none.
inline Ref attribute_if_there(PyObject* object, const char* name) {
  Ref found(PyObject_GetAttrString(object, name));
  if (!found && PyErr_ExceptionMatches(PyExc_AttributeError)) PyErr_Clear();
  return found;
}

/// Releases the GIL for the length of a scope.
class WithoutGil {
 public:
  WithoutGil() : saved_(PyEval_SaveThread()) {}
  ~WithoutGil() { PyEval_RestoreThread(saved_); }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* saved_;
};

/// What `body` gives. An exception of C++ becomes one of Python, with null given.
template <typename Body>
PyObject* guarded(const Body& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return PyErr_NoMemory();
  } catch (const std::exception& error) {
    return PyErr_Format(PyExc_RuntimeError, "kernwright: %s", error.what());
  }
}

}  // namespace kernwright::python
