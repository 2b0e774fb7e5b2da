#include "python/extension/kernel_object.h"

#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "python/extension/array_view.h"
#include "python/extension/driver_context.h"
#include "python/extension/errors.h"

namespace kernwright::python {
namespace {

constexpr int kMostArguments = 32;

/// What the kernel expects at one position.
struct Expected {
  std::string name;
  std::string dtype_text;
  dlpack::DataType dtype{};
  bool scalar = false, output = false;
  int ndim = 0;
  std::int64_t extent[kMostDims] = {};
  std::int64_t strides[kMostDims] = {};  ///< elements
};

struct KernelState {
  kw_kernel* handle = nullptr;
  std::string problem;
  std::vector<Expected> arguments;
  std::size_t tensors = 0;  ///< the first of the arguments; scalars follow
  std::size_t workspace_bytes = 0;
  int device = -1;

  ~KernelState() { kw_release(handle); }
};

struct KernelObject {
  PyObject_HEAD KernelState* state;
};

KernelState& state_of(PyObject* self) { return *reinterpret_cast<KernelObject*>(self)->state; }

std::string text_of(const std::int64_t* values, int count) {
  std::string text = "[";
  for (int i = 0; i < count; ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(values[i]);
  }
  return text + "]";
}

/// Whether the dimensions of `view` are those of `expected`, where neighbours that lie as one
/// dimension count as one and dimensions of size 1 as none: a tensor [batch, tokens, k] is the rows
/// of a product, whatever batch is.
bool lies_as(const ArrayView& view, const Expected& expected) {
  int next = view.ndim - 1;
  for (int i = expected.ndim - 1; i >= 0; --i) {
    std::int64_t covered = 1;
    std::int64_t stride = expected.strides[i];
    while (next >= 0 && (covered < expected.extent[i] || view.shape[next] == 1)) {
      if (view.shape[next] != 1) {
        if (view.strides[next] != stride) return false;
        stride *= view.shape[next];
        covered *= view.shape[next];
      }
      --next;
    }
    if (covered != expected.extent[i]) return false;
  }
  return next < 0;
}

/// Raises what does not fit. Always returns false.
bool refuse(const KernelState& kernel, const Expected& expected, const ArrayView& view) {
  const char* problem = kernel.problem.c_str();
  const char* name = expected.name.c_str();
  if (!view.on_gpu()) {
    raise(problem, "%s lies on no GPU: its DLPack device type is %d, and %d expected", name,
          view.device.type, dlpack::kCuda);
  } else if (view.device.id >= 0 && view.device.id != kernel.device) {
    raise(problem, "%s lies on GPU %d, and the kernel was made for GPU %d", name, view.device.id,
          kernel.device);
  } else if (std::memcmp(&view.dtype, &expected.dtype, sizeof(view.dtype)) != 0) {
    const char* given = dtype_name(view.dtype);
    raise(problem, "%s is %s, and %s expected", name,
          given != nullptr ? given
                           : "of a dtype that "
                             "kernwright does not know",
          expected.dtype_text.c_str());
  } else {
    raise(problem, "%s has the shape %s and the strides %s, and %s with the strides %s expected",
          name, text_of(view.shape, view.ndim).c_str(), text_of(view.strides, view.ndim).c_str(),
          text_of(expected.extent, expected.ndim).c_str(),
          text_of(expected.strides, expected.ndim).c_str());
  }
  return false;
}

bool fits(const KernelState& kernel, const Expected& expected, const ArrayView& view) {
  const bool right = view.on_gpu() && (view.device.id < 0 || view.device.id == kernel.device) &&
                     std::memcmp(&view.dtype, &expected.dtype, sizeof(view.dtype)) == 0 &&
                     lies_as(view, expected);
  return right || refuse(kernel, expected, view);
}

/// No output may lie where another tensor of the launch lies: kernels read and write in any order.
bool apart(const KernelState& kernel, const ArrayView* views) {
  for (std::size_t out = 0; out < kernel.tensors; ++out) {
    if (!kernel.arguments[out].output) continue;
    const ByteRange written = bytes_of(views[out]);
    for (std::size_t other = 0; other < kernel.tensors; ++other) {
      if (other == out || !written.overlaps(bytes_of(views[other]))) continue;
      raise(kernel.problem.c_str(), "%s overlaps %s in memory, and an output has to lie apart",
            kernel.arguments[out].name.c_str(), kernel.arguments[other].name.c_str());
      return false;
    }
  }
  return true;
}

void remember_error(void* context, const char*, const char* message) {
  *static_cast<std::string*>(context) = message;
}

/// Memory of the caller's framework, so that it comes from its pool, and in a capture from the
/// graph's. Null with a Python error set.
dlpack::VersionedTensor* allocate(const dlpack::ExchangeApi& api, dlpack::Tensor prototype) {
  std::string reason = "the framework gave no memory";
  dlpack::VersionedTensor* made = nullptr;
  if (api.allocate(&prototype, &made, &reason, remember_error) == 0 && made != nullptr) return made;
  if (PyErr_Occurred() == nullptr) PyErr_SetString(PyExc_MemoryError, reason.c_str());
  return nullptr;
}

/// The workspace of one launch. It goes back to the framework's pool, which hands it out again in
/// the order of the stream.
class Workspace {
 public:
  /// False with a Python error set.
  bool take(const KernelState& kernel, const ArrayView& like) {
    if (kernel.workspace_bytes == 0 || like.api == nullptr) return true;
    auto bytes = static_cast<std::int64_t>(kernel.workspace_bytes);
    std::int64_t stride = 1;
    dlpack::DataType byte{};
    find_dtype("uint8", byte);
    tensor_ = allocate(*like.api, {nullptr, like.device, 1, byte, &bytes, &stride, 0});
    return tensor_ != nullptr;
  }
  ~Workspace() {
    if (tensor_ != nullptr && tensor_->deleter != nullptr) tensor_->deleter(tensor_);
  }
  /// Null: the launch takes what it needs from a pool of the driver's.
  void* address() const { return tensor_ == nullptr ? nullptr : tensor_->tensor.data; }

 private:
  dlpack::VersionedTensor* tensor_ = nullptr;
};

/// The caller's stream, else the current one of the framework that the first tensor belongs to.
bool find_stream(PyObject* given, const ArrayView& first, int device, void*& stream) {
  stream = nullptr;
  if (given != nullptr && given != Py_None) {
    const Ref number(PyNumber_Index(given));
    if (!number) return false;
    stream = PyLong_AsVoidPtr(number.get());
    return stream != nullptr || PyErr_Occurred() == nullptr;
  }
  if (first.api == nullptr || first.api->current_stream == nullptr) return true;
  return first.api->current_stream(dlpack::kCuda, device, &stream) == 0;
}

PyObject* launch(KernelState& kernel, PyObject* const* given, std::size_t count, PyObject* stream) {
  const char* problem = kernel.problem.c_str();
  if (kernel.device < 0) {
    return raise(problem, "the service has no GPU (sku=...), so the kernel cannot be launched");
  }
  if (count < kernel.tensors || count > kernel.arguments.size()) {
    return raise(problem, "%zu arguments, and %zu tensors and up to %zu scalars expected", count,
                 kernel.tensors, kernel.arguments.size() - kernel.tensors);
  }
  ArrayView views[kMostArguments];
  const void* addresses[kMostArguments];
  double scalars[kMostArguments];
  for (std::size_t i = 0; i < kernel.tensors; ++i) {
    if (!read_array(given[i], views[i]) || !fits(kernel, kernel.arguments[i], views[i])) {
      return nullptr;
    }
    addresses[i] = views[i].data;
  }
  for (std::size_t i = kernel.tensors; i < count; ++i) {
    scalars[i - kernel.tensors] = PyFloat_AsDouble(given[i]);
    if (PyErr_Occurred() != nullptr) return nullptr;
  }
  if (!apart(kernel, views)) return nullptr;
  void* where = nullptr;
  if (!find_stream(stream, views[0], kernel.device, where)) return nullptr;
  Workspace workspace;
  if (!workspace.take(kernel, views[0])) return nullptr;

  int status = 0;
  std::string reason;
  PyThreadState* saved = PyEval_SaveThread();
  {
    const ContextScope context(kernel.device);
    if (context.failure() != nullptr) {
      status = -1;
      reason = context.failure();
    } else {
      status = kw_launch(kernel.handle, where, addresses, kernel.tensors, scalars,
                         count - kernel.tensors, workspace.address());
      if (status != 0) reason = kw_last_error();
    }
  }
  PyEval_RestoreThread(saved);
  if (status != 0) return raise(problem, "%s", reason.c_str());
  Py_RETURN_NONE;
}

PyObject* kernel_launch(PyObject* self, PyObject* const* given, Py_ssize_t count, PyObject* names) {
  PyObject* stream = nullptr;
  const Py_ssize_t named = names == nullptr ? 0 : PyTuple_Size(names);
  for (Py_ssize_t i = 0; i < named; ++i) {
    PyObject* name = PyTuple_GetItem(names, i);
    if (PyUnicode_CompareWithASCIIString(name, "stream") != 0) {
      return PyErr_Format(PyExc_TypeError, "launch() has no argument %R, only stream", name);
    }
    stream = given[count + i];
  }
  return launch(state_of(self), given, static_cast<std::size_t>(count), stream);
}

PyObject* kernel_call(PyObject* self, PyObject* arguments, PyObject* names) {
  PyObject* given[kMostArguments];
  const Py_ssize_t count = PyTuple_Size(arguments);
  if (count > kMostArguments) {
    return raise(state_of(self).problem.c_str(), "%zd arguments; at most %d are taken", count,
                 kMostArguments);
  }
  for (Py_ssize_t i = 0; i < count; ++i) given[i] = PyTuple_GetItem(arguments, i);
  PyObject* stream = names == nullptr ? nullptr : PyDict_GetItemString(names, "stream");
  const Py_ssize_t known = stream == nullptr ? 0 : 1;
  if (names != nullptr && PyDict_Size(names) != known) {
    return PyErr_Format(PyExc_TypeError, "a kernel takes tensors, scalars and stream=, not %R",
                        names);
  }
  return launch(state_of(self), given, static_cast<std::size_t>(count), stream);
}

PyObject* kernel_description(PyObject* self, void*) {
  return PyUnicode_FromString(kw_describe(state_of(self).handle));
}

PyObject* kernel_problem(PyObject* self, void*) {
  return PyUnicode_FromString(state_of(self).problem.c_str());
}

PyObject* kernel_workspace(PyObject* self, void*) {
  return PyLong_FromSize_t(state_of(self).workspace_bytes);
}

PyObject* kernel_handle(PyObject* self, void*) { return PyLong_FromVoidPtr(state_of(self).handle); }

PyObject* kernel_repr(PyObject* self) {
  return PyUnicode_FromFormat("<kernwright.Kernel %s>", state_of(self).problem.c_str());
}

void kernel_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  delete reinterpret_cast<KernelObject*>(self)->state;
  auto* release = reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free));
  release(self);
  Py_DECREF(type);
}

PyMethodDef kMethods[] = {
    {"launch", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(kernel_launch)),
     METH_FASTCALL | METH_KEYWORDS,
     "launch(*tensors_and_scalars, stream=None)\n\nLaunches the kernel on the tensors of its "
     "operation, in the operation's order, outputs among them; scalars follow and may be left out. "
     "It runs on `stream`, a number, else on the current stream of the tensors' framework. It does "
     "not wait.\n\nRaises kernwright.Error, which names the tensor and both values, where one has "
     "another dtype, shape, strides or device, or where an output overlaps another tensor."},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef kGetters[] = {
    {"description", kernel_description, nullptr, "kw_describe()'s JSON text.", nullptr},
    {"problem", kernel_problem, nullptr, "The problem in text form.", nullptr},
    {"workspace_bytes", kernel_workspace, nullptr, "Bytes of workspace of a launch.", nullptr},
    {"handle", kernel_handle, nullptr, "The address of the C API's kw_kernel.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot kSlots[] = {
    {Py_tp_doc, const_cast<char*>("A loaded kernel for one problem; call it as launch().")},
    {Py_tp_dealloc, reinterpret_cast<void*>(kernel_dealloc)},
    {Py_tp_call, reinterpret_cast<void*>(kernel_call)},
    {Py_tp_repr, reinterpret_cast<void*>(kernel_repr)},
    {Py_tp_methods, kMethods},
    {Py_tp_getset, kGetters},
    {0, nullptr}};

PyType_Spec kSpec = {"kernwright._kernwright.KernelHandle", sizeof(KernelObject), 0,
                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, kSlots};

PyObject* kernel_type = nullptr;  // guarded by the GIL

/// Fills `expected` from one object of "arguments". False with a Python error set.
bool read_expected(PyObject* described, Expected& expected) {
  const auto text = [described](const char* key, std::string& into) {
    PyObject* value = PyDict_GetItemString(described, key);
    const char* characters = value == nullptr ? nullptr : PyUnicode_AsUTF8AndSize(value, nullptr);
    if (characters != nullptr) into = characters;
    return characters != nullptr;
  };
  const auto integers = [described](const char* key, std::int64_t(&into)[kMostDims]) {
    PyObject* list = PyDict_GetItemString(described, key);
    if (list == nullptr) return -1;
    const Py_ssize_t count = PyList_Size(list);
    if (count < 0 || count > kMostDims) return -1;
    for (Py_ssize_t i = 0; i < count; ++i) into[i] = PyLong_AsLongLong(PyList_GetItem(list, i));
    return static_cast<int>(count);
  };
  const auto flag = [described](const char* key) {
    PyObject* value = PyDict_GetItemString(described, key);
    return value != nullptr && PyObject_IsTrue(value) == 1;
  };
  if (!text("name", expected.name) || !text("dtype", expected.dtype_text)) return false;
  expected.scalar = flag("scalar");
  expected.output = flag("output");
  if (expected.scalar) return true;
  expected.ndim = integers("extent", expected.extent);
  return find_dtype(expected.dtype_text.c_str(), expected.dtype) && expected.ndim >= 0 &&
         integers("strides", expected.strides) == expected.ndim;
}

}  // namespace

bool add_kernel_type(PyObject* module) {
  kernel_type = PyType_FromSpec(&kSpec);
  if (kernel_type == nullptr) return false;
  Py_INCREF(kernel_type);
  return PyModule_AddObject(module, "KernelHandle", kernel_type) == 0;
}

PyObject* make_kernel(kw_kernel* kernel, const char* problem, PyObject* arguments, int device) {
  auto state = std::make_unique<KernelState>();
  state->handle = kernel;
  state->problem = problem;
  state->device = device;
  state->workspace_bytes = kw_workspace_bytes(kernel);
  const Py_ssize_t count = PyList_Size(arguments);
  if (count < 0) return nullptr;
  if (count > kMostArguments)
    return raise(problem, "%zd arguments; at most %d are taken", count, kMostArguments);
  for (Py_ssize_t i = 0; i < count; ++i) {
    Expected expected;
    if (!read_expected(PyList_GetItem(arguments, i), expected)) {
      if (PyErr_Occurred() == nullptr) raise(problem, "argument %zd is not understood", i);
      return nullptr;
    }
    if (!expected.scalar) ++state->tensors;
    state->arguments.push_back(std::move(expected));
  }
  auto* allocate_object = reinterpret_cast<allocfunc>(
      PyType_GetSlot(reinterpret_cast<PyTypeObject*>(kernel_type), Py_tp_alloc));
  PyObject* object = allocate_object(reinterpret_cast<PyTypeObject*>(kernel_type), 0);
  if (object != nullptr) reinterpret_cast<KernelObject*>(object)->state = state.release();
  return object;
}

PyObject* allocate_like(PyObject* like, PyObject* shape, const char* dtype) {
  ArrayView view;
  if (!read_array(like, view)) return nullptr;
  if (view.api == nullptr) {
    return PyErr_Format(PyExc_TypeError,
                        "arrays of %R cannot be made here; give out=", Py_TYPE(like));
  }
  dlpack::Tensor prototype{};
  if (!find_dtype(dtype, prototype.dtype)) {
    return PyErr_Format(PyExc_ValueError, "dtype %s is not one of kernwright's", dtype);
  }
  std::int64_t extent[kMostDims] = {}, strides[kMostDims] = {};
  const Py_ssize_t ndim = PySequence_Size(shape);
  if (ndim < 0) return nullptr;
  if (ndim > kMostDims) {
    return PyErr_Format(PyExc_ValueError, "%zd dimensions; at most %d are taken", ndim, kMostDims);
  }
  for (Py_ssize_t i = 0; i < ndim; ++i) {
    const Ref item(PySequence_GetItem(shape, i));
    if (!item) return nullptr;
    extent[i] = PyLong_AsLongLong(item.get());
    if (PyErr_Occurred() != nullptr) return nullptr;
  }
  std::int64_t stride = 1;
  for (Py_ssize_t i = ndim - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= extent[i];
  }
  prototype.device = view.device;
  prototype.ndim = static_cast<std::int32_t>(ndim);
  prototype.shape = extent;
  prototype.strides = strides;
  dlpack::VersionedTensor* made = allocate(*view.api, prototype);
  if (made == nullptr) return nullptr;
  void* object = nullptr;
  if (view.api->import_managed(made, &object) != 0) return nullptr;
  return static_cast<PyObject*>(object);
}

}  // namespace kernwright::python
