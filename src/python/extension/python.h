#pragma once

// The limited API of Python 3.10, so that one binary serves every later Python.
#define Py_LIMITED_API 0x030A0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <atomic>
#include <exception>
#include <new>
#include <utility>

// A process may end while a daemon thread is in a call. Such a thread must not touch an object
// again: if it waits for the GIL, Python 3.10 to 3.13 unwind its stack without the GIL, through the
// frames of this extension too. These frames stop it until the process is gone.
namespace kernwright::python {

/// Returns true if the interpreter ends and the calling thread is not the one that ends it.
bool is_left_behind();

/// Waits for the end of the process.
[[noreturn]] void wait_for_exit();

/// Registers for the interpreter's end. If threads are in the library then, or wait to come back
/// from it, the process exits without running the destructors that they depend on. Returns false
/// with a Python error set.
bool watch_exit();

/// The number of threads that released the GIL in a WithoutGil.
extern std::atomic<int> threads_without_gil;

/// The number of threads in a function of another library that releases the GIL, guarded by the
/// GIL. The library would abort the process if it waited for the GIL of an interpreter that ends,
/// so the interpreter's end waits for these threads. No thread that is left behind may begin such a
/// call.
extern int threads_in_foreign_calls;

/// Releases a reference.
inline void drop(PyObject* owned) noexcept {
  if (owned == nullptr || is_left_behind()) return;
  try {
    Py_DECREF(owned);
  } catch (...) {  // its destructor waited for the GIL
    wait_for_exit();
  }
}

/// A reference that is released at the end of its scope. Null if a call failed.
class Ref {
 public:
  Ref() = default;
  explicit Ref(PyObject* owned) : object_(owned) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { drop(object_); }

  /// Takes one more reference to an object that somebody else holds. Returns null for null.
  static Ref to(PyObject* borrowed) {
    Py_XINCREF(borrowed);
    return Ref(borrowed);
  }

  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

/// Objects that live as long as this.
class Kept {
 public:
  Kept() = default;
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;
  ~Kept() {
    if (!list_ || is_left_behind()) return;
    // The destructor of an export knows nothing of the Python error that a call may end with.
    PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
    PyErr_Fetch(&type, &value, &trace);
    list_ = Ref();
    PyErr_Restore(type, value, trace);
  }

  /// Returns false with a Python error set.
  bool add(PyObject* object) {
    if (!list_) list_ = Ref(PyList_New(0));
    return list_ && PyList_Append(list_.get(), object) == 0;
  }
  Ref take() { return std::move(list_); }

 private:
  Ref list_;
};

/// Returns the attribute, or null without an error if there is none.
inline Ref attribute_if_there(PyObject* object, const char* name) {
  Ref found(PyObject_GetAttrString(object, name));
  if (!found && PyErr_ExceptionMatches(PyExc_AttributeError)) PyErr_Clear();
  return found;
}

/// Releases the GIL for the length of a scope.
class WithoutGil {
 public:
  WithoutGil() {
    threads_without_gil.fetch_add(1, std::memory_order_relaxed);
    saved_ = PyEval_SaveThread();
  }
  ~WithoutGil() {
    try {
      PyEval_RestoreThread(saved_);
    } catch (...) {
      wait_for_exit();
    }
    threads_without_gil.fetch_sub(1, std::memory_order_relaxed);
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* saved_;
};

/// Returns the result of `body`. A C++ exception becomes one of Python, and null is returned.
template <typename Body>
PyObject* guarded(const Body& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return PyErr_NoMemory();
  } catch (const std::exception& error) {
    return PyErr_Format(PyExc_RuntimeError, "kernwright: %s", error.what());
  } catch (...) {  // what it called waited for the GIL
    wait_for_exit();
  }
}

/// `Function`, which Python calls, guarded.
template <auto Function>
struct Guarded;
template <typename... Arguments, PyObject* (*Function)(Arguments...)>
struct Guarded<Function> {
  static PyObject* call(Arguments... arguments) noexcept {
    return guarded([&] { return Function(arguments...); });
  }
};

/// Returns the same in the form of method tables, whatever its arguments are.
template <auto Function>
PyCFunction method() {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(Guarded<Function>::call));
}

}  // namespace kernwright::python
