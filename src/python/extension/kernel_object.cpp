#include "python/extension/kernel_object.h"

#include <cstddef>
#include <memory>
#include <structmember.h>

#include "python/extension/call_arguments.h"
#include "python/extension/errors.h"

namespace kernwright::python {
namespace {

using Vectorcall = PyObject* (*)(PyObject*, PyObject* const*, std::size_t, PyObject*);
PyObject* kernel_vectorcall(PyObject* self, PyObject* const* given, std::size_t count,
                            PyObject* names);

struct KernelObject {
  PyObject_HEAD KernelState* state;
  Vectorcall vectorcall;
};

KernelState& state_of(PyObject* self) { return *reinterpret_cast<KernelObject*>(self)->state; }

PyObject* launch_call(const KernelState& kernel, PyObject* const* given, std::size_t count,
                      PyObject* stream) {
  CallArguments arguments;
  if (!arguments.read(kernel, given, count) ||
      !launch(kernel, arguments.tensors, arguments.scalars, arguments.scalar_count, stream,
              arguments.kept)) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* kernel_launch(PyObject* self, PyObject* const* given, Py_ssize_t count, PyObject* names) {
  PyObject* stream = nullptr;
  const Py_ssize_t named = names == nullptr ? 0 : PyTuple_Size(names);
  for (Py_ssize_t i = 0; i < named; ++i) {
    PyObject* name = PyTuple_GetItem(names, i);
    if (PyUnicode_CompareWithASCIIString(name, "stream") != 0) {
      return PyErr_Format(PyExc_TypeError, "a kernel takes no argument %R, only stream", name);
    }
    stream = given[count + i];
  }
  return launch_call(state_of(self), given, static_cast<std::size_t>(count), stream);
}

/// Calls objects as CPython does since 3.12. The types of Python classes inherit it there. Python
/// 3.10 and 3.11 call `kernel_call`.
PyObject* kernel_vectorcall(PyObject* self, PyObject* const* given, std::size_t count,
                            PyObject* names) {
  constexpr std::size_t kOffset = std::size_t{1} << (8 * sizeof(std::size_t) - 1);
  return Guarded<kernel_launch>::call(self, given, static_cast<Py_ssize_t>(count & ~kOffset),
                                      names);
}

PyObject* kernel_call(PyObject* self, PyObject* arguments, PyObject* names) {
  PyObject* given[kMostArguments];
  const auto count = static_cast<std::size_t>(PyTuple_Size(arguments));
  if (count > kMostArguments) {
    return raise(state_of(self).problem.c_str(), "%zu arguments, and at most %zu expected", count,
                 kMostArguments);
  }
  for (std::size_t i = 0; i < count; ++i) {
    given[i] = PyTuple_GetItem(arguments, static_cast<Py_ssize_t>(i));
  }
  PyObject* stream = names == nullptr ? nullptr : PyDict_GetItemString(names, "stream");
  const Py_ssize_t known = stream == nullptr ? 0 : 1;
  if (names != nullptr && PyDict_Size(names) != known) {
    return PyErr_Format(PyExc_TypeError, "a kernel takes no argument but stream, not %R", names);
  }
  return launch_call(state_of(self), given, count, stream);
}

/// Fills `expected` from one object of "arguments". Returns false if it is not understood.
bool read_expected(PyObject* described, Expected& expected) {
  if (PyDict_Check(described) == 0) return false;
  const auto item = [described](const char* key) {
    return Ref::to(PyDict_GetItemString(described, key));
  };
  const auto text = [&](const char* key, std::string& into) {
    const Ref value = item(key);
    return value && read_text(value.get(), into);
  };
  // Reading an item may run code that changes the list.
  const auto integers = [&](const char* key, std::int64_t(&into)[kMostDims]) {
    const Ref list = item(key);
    const Ref items(list && PyList_Check(list.get()) != 0 ? PyList_AsTuple(list.get()) : nullptr);
    const Py_ssize_t count = items ? PyTuple_Size(items.get()) : -1;
    if (count > kMostDims) return -1;
    for (Py_ssize_t i = 0; i < count; ++i) {
      into[i] = PyLong_AsLongLong(PyTuple_GetItem(items.get(), i));
    }
    return PyErr_Occurred() == nullptr ? static_cast<int>(count) : -1;
  };
  const auto flag = [&](const char* key) {
    const Ref value = item(key);
    return value && PyObject_IsTrue(value.get()) == 1;
  };
  if (!text("name", expected.name) || !text("dtype", expected.dtype_text)) return false;
  expected.scalar = flag("scalar");
  expected.output = flag("output");
  if (expected.scalar) return true;
  if (!text("in_place", expected.in_place)) PyErr_Clear();
  expected.ndim = integers("extent", expected.extent);
  return find_dtype(expected.dtype_text.c_str(), expected.dtype) && expected.ndim >= 0 &&
         integers("strides", expected.strides) == expected.ndim;
}

constexpr const char* kExpectDoc =
    "_expect(arguments, device)\n\n"
    "Sets once the arguments that launches take: the list of kw_describe()'s \"arguments\", or a "
    "changed copy of it, and the number of the kernel's GPU, -1 if it cannot be launched.";
PyObject* kernel_expect(PyObject* self, PyObject* given) {
  PyObject* arguments = nullptr;
  int device = -1;
  if (PyArg_ParseTuple(given, "Oi", &arguments, &device) == 0) return nullptr;
  KernelState& state = state_of(self);
  const char* problem = state.problem.c_str();
  if (PyList_Check(arguments) == 0) {
    return PyErr_Format(PyExc_TypeError, "arguments is %R, and a list expected",
                        Py_TYPE(arguments));
  }
  const Ref items(PyList_AsTuple(arguments));
  if (!items) return nullptr;
  const auto count = static_cast<std::size_t>(PyTuple_Size(items.get()));
  if (count > kMostArguments) {
    return raise(problem, "%zu arguments, and at most %zu expected", count, kMostArguments);
  }
  std::vector<Expected> read(count);
  std::size_t tensors = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (!read_expected(PyTuple_GetItem(items.get(), static_cast<Py_ssize_t>(i)), read[i])) {
      if (PyErr_Occurred() != nullptr && PyErr_ExceptionMatches(PyExc_Exception) == 0) {
        return nullptr;
      }
      PyErr_Clear();
      return raise(problem, "argument %zu is not understood", i);
    }
    if (read[i].scalar) continue;
    if (tensors++ != i) return raise(problem, "argument %zu is a tensor behind a scalar", i);
    if (!find_footprint(read[i])) return raise(problem, "argument %zu is no tensor", i);
  }
  // Reading them may have run code that called this.
  if (!state.arguments.empty()) return raise(problem, "it is known already what launches take");
  state.arguments = std::move(read);
  state.tensors = tensors;
  state.device = device;
  Py_RETURN_NONE;
}

PyObject* kernel_new(PyTypeObject* type, PyObject*, PyObject*) {
  return PyErr_Format(PyExc_TypeError, "%R is made by a service, not by calling it", type);
}

PyObject* kernel_description(PyObject* self, void*) {
  return text_from(kw_describe(state_of(self).handle));
}

PyObject* kernel_workspace(PyObject* self, void*) {
  return PyLong_FromSize_t(state_of(self).workspace_bytes);
}

PyObject* kernel_layouts(PyObject* self, void*) {
  const KernelState& state = state_of(self);
  Ref list(PyList_New(0));
  for (std::size_t i = 0; list && i < state.tensors; ++i) {
    const Expected& expected = state.arguments[i];
    const Ref extent(PyList_New(expected.ndim));
    const Ref strides(PyList_New(expected.ndim));
    for (int axis = 0; extent && strides && axis < expected.ndim; ++axis) {
      PyList_SetItem(extent.get(), axis, PyLong_FromLongLong(expected.extent[axis]));
      PyList_SetItem(strides.get(), axis, PyLong_FromLongLong(expected.strides[axis]));
    }
    const Ref one(
        Py_BuildValue("(OOO)", extent.get(), strides.get(), expected.output ? Py_True : Py_False));
    if (!one || PyList_Append(list.get(), one.get()) != 0) return nullptr;
  }
  return list.release();
}

PyObject* kernel_handle(PyObject* self, void*) { return PyLong_FromVoidPtr(state_of(self).handle); }

void kernel_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  delete reinterpret_cast<KernelObject*>(self)->state;
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

PyMethodDef kMethods[] = {{"launch", method<kernel_launch>(), METH_FASTCALL | METH_KEYWORDS,
                           "launch($self, /, *tensors_and_scalars, stream=None)\n--\n\n"
                           "Does the same as calling the kernel."},
                          {"_expect", method<kernel_expect>(), METH_VARARGS, kExpectDoc},
                          {nullptr, nullptr, 0, nullptr}};

// The limited API has these since 3.12; CPython 3.10 and 3.11 know them as well.
constexpr unsigned kHasVectorcall = 1U << 11;
PyMemberDef kMembers[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(KernelObject, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

PyGetSetDef kGetters[] = {
    {"_description", Guarded<kernel_description>::call, nullptr, "kw_describe()'s JSON text.",
     nullptr},
    {"_layouts", Guarded<kernel_layouts>::call, nullptr,
     "(extent, strides, is written) of each tensor that launches take.", nullptr},
    {"workspace_bytes", Guarded<kernel_workspace>::call, nullptr,
     "The device bytes that a launch needs as workspace; often 0.", nullptr},
    {"handle", Guarded<kernel_handle>::call, nullptr,
     "The address of the C API's kw_kernel, valid while this lives.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot kSlots[] = {{Py_tp_doc, const_cast<char*>("A loaded kernel for one problem.")},
                        {Py_tp_new, reinterpret_cast<void*>(Guarded<kernel_new>::call)},
                        {Py_tp_dealloc, reinterpret_cast<void*>(kernel_dealloc)},
                        {Py_tp_call, reinterpret_cast<void*>(Guarded<kernel_call>::call)},
                        {Py_tp_methods, kMethods},
                        {Py_tp_members, kMembers},
                        {Py_tp_getset, kGetters},
                        {0, nullptr}};

PyType_Spec kSpec = {"kernwright._kernwright.KernelHandle", sizeof(KernelObject), 0,
                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | kHasVectorcall, kSlots};

PyTypeObject* kernel_type = nullptr;  // guarded by the GIL

}  // namespace

bool add_kernel_type(PyObject* module) {
  kernel_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&kSpec));
  if (kernel_type == nullptr) return false;
  Py_INCREF(kernel_type);
  return PyModule_AddObject(module, "KernelHandle", reinterpret_cast<PyObject*>(kernel_type)) == 0;
}

PyObject* make_kernel(PyObject* type, kw_kernel* kernel, const char* problem) {
  auto state = std::make_unique<KernelState>();
  state->handle = kernel;
  state->problem = problem;
  state->workspace_bytes = kw_workspace_bytes(kernel);
  auto* made_type = reinterpret_cast<PyTypeObject*>(type);
  if (PyType_Check(type) == 0 || PyType_IsSubtype(made_type, kernel_type) == 0) {
    return PyErr_Format(PyExc_TypeError, "%R does not derive from KernelHandle", type);
  }
  PyObject* object =
      reinterpret_cast<allocfunc>(PyType_GetSlot(made_type, Py_tp_alloc))(made_type, 0);
  if (object == nullptr) return nullptr;
  reinterpret_cast<KernelObject*>(object)->vectorcall = kernel_vectorcall;
  reinterpret_cast<KernelObject*>(object)->state = state.release();
  return object;
}

PyObject* make_kernel_like(PyObject* like, kw_kernel* kernel, const TensorLayout* layouts) {
  Ref made(make_kernel(reinterpret_cast<PyObject*>(Py_TYPE(like)), kernel, kw_problem_of(kernel)));
  if (!made) return nullptr;
  const KernelState& known = state_of(like);
  KernelState& state = state_of(made.get());
  state.arguments = known.arguments;
  state.tensors = known.tensors;
  state.device = known.device;
  for (std::size_t i = 0; i < state.tensors; ++i) {
    Expected& expected = state.arguments[i];
    if (layouts[i].ndim == 0) continue;
    expected.ndim = layouts[i].ndim;
    for (int axis = 0; axis < expected.ndim; ++axis) {
      expected.extent[axis] = layouts[i].shape[axis];
      expected.strides[axis] = expected.extent[axis] == 1 ? 1 : layouts[i].strides[axis];
    }
    if (!find_footprint(expected)) return nullptr;
  }
  return made.release();
}

const KernelState* kernel_of(PyObject* object) {
  return PyObject_TypeCheck(object, kernel_type) == 0 ? nullptr : &state_of(object);
}

}  // namespace kernwright::python
