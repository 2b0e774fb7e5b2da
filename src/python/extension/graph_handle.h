#pragma once

#include <memory>
#include <string>

#include "python/extension/arrays/driver_context.h"
#include "python/extension/arrays/stream.h"
#include "python/extension/arrays/torch_tensor.h"
#include "python/extension/errors.h"
#include "python/extension/python.h"
#include <kernwright/c.h>

namespace kernwright::python {

/// The common part of baked launches and chains: launches that one thread makes at a time, on
/// arrays that stay alive.
struct GraphState {
  std::string name;  ///< the problem that errors name
  int device = -1;
  Framework framework;  ///< the arrays' framework
  Ref kept;             ///< arrays and kernels that never change
  Ref bound;            ///< arrays that a rebind replaces, and what their exports hold
  Ref written;          ///< tensors of PyTorch that a launch writes, or null
  bool busy = false;    ///< a thread is in a call; guarded by the GIL
};

/// Calls `call`, which returns a status of the C API, without the GIL, in the context of the GPU.
/// Returns false with kernwright.Error set.
template <typename Call>
bool call_alone(GraphState& state, const Call& call) {
  const char* name = state.name.c_str();
  if (state.busy) {
    raise(name, "another thread uses it, and one thread may at a time");
    return false;
  }
  const ContextScope context(state.device);
  if (context.failure() != nullptr) {
    raise(name, "%s", context.failure());
    return false;
  }
  int status = 0;
  state.busy = true;
  {
    const WithoutGil released;
    status = call();
  }
  state.busy = false;
  if (status != 0) Failure::last().raise(name);
  return status == 0;
}

/// Calls `call` in the same way, on the stream that is the one argument of a method.
template <typename Call>
PyObject* call_on_stream(GraphState& state, const char* what, PyObject* const* given,
                         Py_ssize_t count, PyObject* names, const Call& call) {
  PyObject* named = nullptr;
  void* stream = nullptr;
  if (!only_stream(what, given, count, names, named)) return nullptr;
  if (!find_stream(named, state.framework, state.device, stream)) {
    return raise_current(state.name.c_str(), "stream");
  }
  if (!call_alone(state, [&] { return call(stream); })) return nullptr;
  // Held here, since another thread may rebind it while this one waits for the GIL.
  const Ref written = Ref::to(state.written.get());
  if (written && !mark_written(written.get())) return nullptr;
  Py_RETURN_NONE;
}

/// An object that owns a `State`, which derives from GraphState.
template <typename State>
struct GraphObject {
  PyObject_HEAD State* state;

  static State& of(PyObject* self) { return *reinterpret_cast<GraphObject*>(self)->state; }

  static PyObject* refuse_new(PyTypeObject* type, PyObject*, PyObject*) {
    return PyErr_Format(PyExc_TypeError, "%R is made by a kernel or a builder, not by calling it",
                        type);
  }

  static PyObject* make(PyObject* type, PyTypeObject* base, std::unique_ptr<State> state) {
    auto* made_type = reinterpret_cast<PyTypeObject*>(type);
    if (PyType_Check(type) == 0 || PyType_IsSubtype(made_type, base) == 0) {
      return PyErr_Format(PyExc_TypeError, "%R does not derive from %R", type, base);
    }
    PyObject* object =
        reinterpret_cast<allocfunc>(PyType_GetSlot(made_type, Py_tp_alloc))(made_type, 0);
    if (object != nullptr) reinterpret_cast<GraphObject*>(object)->state = state.release();
    return object;
  }

  static void dealloc(PyObject* self) {
    PyTypeObject* type = Py_TYPE(self);
    delete reinterpret_cast<GraphObject*>(self)->state;
    reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
  }
};

/// Makes a type of these specifications and adds it to the module under `name`. Null with a Python
/// error set.
inline PyTypeObject* add_type(PyObject* module, PyType_Spec& spec, const char* name) {
  PyObject* type = PyType_FromSpec(&spec);
  if (type == nullptr) return nullptr;
  Py_INCREF(type);
  return PyModule_AddObject(module, name, type) == 0 ? reinterpret_cast<PyTypeObject*>(type)
                                                     : nullptr;
}

}  // namespace kernwright::python
