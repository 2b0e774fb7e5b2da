#include "python/extension/arrays/torch_tensor.h"

#include <memory>
#include <string>

#include "python/extension/errors.h"

namespace kernwright::python {
namespace {

/// Returns the code of a function of a module or of a method of an object that is written in C and
/// has this calling convention; else null. It is called past Python's own checks of a call, which
/// cost more than these functions do.
PyCFunction code_of(const Ref& callable, int convention) {
  if (!callable || Py_TYPE(callable.get()) != &PyCFunction_Type ||
      PyCFunction_GetFlags(callable.get()) != convention) {
    PyErr_Clear();
    return nullptr;
  }
  return PyCFunction_GetFunction(callable.get());
}

Ref attribute(const Ref& object, const char* name) {
  return Ref(object ? PyObject_GetAttrString(object.get(), name) : nullptr);
}

/// The parts of PyTorch that each call needs, found once.
struct Torch {
  Ref module, native, forward, tensor_class, requires_grad;
  descrgetfunc get_requires_grad;
  Ref level_name{PyUnicode_InternFromString("_current_level")};
  PyCFunction is_grad_enabled, increment_version;  // functions of `native`; the second may be null

  explicit Torch(Ref imported)
      : module(std::move(imported)),
        native(attribute(module, "_C")),
        forward(attribute(attribute(module, "autograd"), "forward_ad")),
        tensor_class(attribute(module, "Tensor")),
        requires_grad(attribute(tensor_class, "requires_grad")),
        get_requires_grad(requires_grad ? reinterpret_cast<descrgetfunc>(PyType_GetSlot(
                                              Py_TYPE(requires_grad.get()), Py_tp_descr_get))
                                        : nullptr),
        is_grad_enabled(code_of(attribute(native, "is_grad_enabled"), METH_NOARGS)),
        increment_version(code_of(attribute(native, "_increment_version"), METH_O)) {}

  bool is_complete() const {
    return forward && get_requires_grad != nullptr && is_grad_enabled != nullptr;
  }
};

/// Returns null if PyTorch is not imported, or not yet, or if it lacks what every release from 2.0
/// on has.
Torch* torch() {
  static Torch* found = nullptr;  // guarded by the GIL; lives as long as the process
  if (found != nullptr) return found;
  const Ref name(PyUnicode_FromString("torch"));
  Ref module(name ? PyImport_GetModule(name.get()) : nullptr);
  if (!module || !attribute_if_there(module.get(), "Tensor")) {
    PyErr_Clear();
    return nullptr;
  }
  auto made = std::make_unique<Torch>(std::move(module));
  if (!made->is_complete()) {
    PyErr_Clear();
    return nullptr;
  }
  return found = made.release();
}

/// Returns 1 if an answer is true, else 0. -1 with a Python error set.
int is_true(const Ref& answer) {
  if (answer.get() == Py_False) return 0;
  return answer ? PyObject_IsTrue(answer.get()) : -1;
}

/// Returns 1 if forward-mode derivatives are on, else 0. -1 with a Python error set.
int is_forward_on() {
  PyObject* level =
      PyDict_GetItemWithError(PyModule_GetDict(torch()->forward.get()), torch()->level_name.get());
  if (level == nullptr) {
    if (PyErr_Occurred() == nullptr) PyErr_SetString(PyExc_KeyError, "_current_level");
    return -1;
  }
  const long depth = PyLong_AsLong(level);
  return depth == -1 && PyErr_Occurred() != nullptr ? -1 : static_cast<int>(depth >= 0);
}

/// Returns 1 if it has a tangent of forward-mode derivatives, else 0. -1 with a Python error set.
int has_tangent(PyObject* tensor) {
  const Ref pair(PyObject_CallMethod(torch()->forward.get(), "unpack_dual", "O", tensor));
  const Ref tangent(pair ? PySequence_GetItem(pair.get(), 1) : nullptr);
  return tangent ? static_cast<int>(tangent.get() != Py_None) : -1;
}

/// Returns 1 if backward will ask for the tensor's gradient, else 0. -1 with a Python error set.
int has_gradient(PyObject* tensor) {
  const Torch& known = *torch();
  return is_true(Ref(known.get_requires_grad(known.requires_grad.get(), tensor,
                                             reinterpret_cast<PyObject*>(Py_TYPE(tensor)))));
}

/// Returns 1 if the tensor negates what lies in memory when it is read, else 0. -1 with a Python
/// error set.
int is_neg(PyObject* tensor) {
  static const PyCFunction code =
      code_of(Ref(PyObject_GetAttrString(tensor, "is_neg")), METH_NOARGS);
  ++threads_in_foreign_calls;
  const Ref negates(code != nullptr ? code(tensor, nullptr)
                                    : PyObject_CallMethod(tensor, "is_neg", nullptr));
  --threads_in_foreign_calls;
  return is_true(negates);
}

/// Does the same without releasing the GIL, in several times the time.
int has_negative_key(PyObject* tensor) {
  const Ref& native = torch()->native;
  const Ref negative(attribute(attribute(native, "DispatchKey"), "Negative"));
  const Ref keys(negative ? PyObject_CallMethod(native.get(), "_dispatch_keys", "O", tensor)
                          : nullptr);
  return is_true(Ref(keys ? PyObject_CallMethod(keys.get(), "has", "O", negative.get()) : nullptr));
}

}  // namespace

bool is_tensor_type(PyTypeObject* type) {
  const Torch* found = torch();
  return found != nullptr &&
         PyType_IsSubtype(type, reinterpret_cast<PyTypeObject*>(found->tensor_class.get())) != 0;
}

bool holds_values(PyObject* tensor) {
  const int negates = is_left_behind() ? has_negative_key(tensor) : is_neg(tensor);
  if (negates == 1) {
    PyErr_SetString(PyExc_ValueError,
                    "a view that negates what lies in memory (is_neg() is true); give "
                    "resolve_neg() of it");
  }
  return negates == 0;
}

bool need_no_derivative(PyObject* const* tensors, std::size_t count, PyObject* operation) {
  if (count == 0) return true;
  const int backward = is_true(Ref(torch()->is_grad_enabled(torch()->native.get(), nullptr)));
  const int forward = backward < 0 ? -1 : is_forward_on();
  if (forward < 0) return false;
  if (backward + forward == 0) return true;
  for (std::size_t i = 0; i < count; ++i) {
    const int gradient = backward == 1 ? has_gradient(tensors[i]) : 0;
    const int tangent = gradient == 0 && forward == 1 ? has_tangent(tensors[i]) : 0;
    if (gradient == 0 && tangent == 0) continue;
    std::string name;
    if (gradient < 0 || tangent < 0 || !read_text(operation, name)) return false;
    // This is not a refusal, since PyTorch's own operators, if they stand in, lack the derivative
    // too.
    Failure{gradient == 1 ? "an array requires a gradient, and kernwright." + name +
                                " gives none: call kernwright.torch." + name +
                                ", or call it under torch.no_grad()"
                          : "an array has a tangent, and kernwright." + name +
                                " gives no forward-mode derivative: use PyTorch's own function",
            false}
        .raise("");
    return false;
  }
  return true;
}

bool mark_written(PyObject* tensors) {
  if (PyTuple_Size(tensors) == 0) return true;
  const Torch& known = *torch();
  if (known.increment_version != nullptr) {
    return static_cast<bool>(Ref(known.increment_version(known.native.get(), tensors)));
  }
  const Ref graph(attribute(attribute(known.module, "autograd"), "graph"));
  return graph && static_cast<bool>(
                      Ref(PyObject_CallMethod(graph.get(), "increment_version", "(O)", tensors)));
}

}  // namespace kernwright::python
