#include "python/extension/kernel_object.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "python/extension/array_view.h"
#include "python/extension/driver_context.h"
#include "python/extension/errors.h"
#include "python/extension/overlap.h"

namespace kernwright::python {
namespace {

constexpr std::size_t kMostArguments = 32;

/// What the kernel takes at one position.
struct Expected {
  std::string name;
  std::string dtype_text;
  dlpack::DataType dtype{};
  bool scalar = false, output = false;
  int ndim = 0;
  std::int64_t extent[kMostDims] = {};
  std::int64_t strides[kMostDims] = {};  ///< elements
  Footprint footprint;
};

struct KernelState {
  kw_kernel* handle = nullptr;
  std::string problem;
  std::vector<Expected> arguments;
  std::size_t tensors = 0;  ///< the first of the arguments; scalars follow
  std::size_t workspace_bytes = 0;
  int device = -1;  ///< -1 where it cannot be launched

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
      const std::int64_t size = view.shape[next];
      if (size != 1) {
        if (size <= 0 || view.strides[next] != stride) return false;
        if (covered > expected.extent[i] / size) return false;
        stride *= size;
        covered *= size;
      }
      --next;
    }
    if (covered != expected.extent[i]) return false;
  }
  return next < 0;
}

/// The same where the dimensions are equal one by one, which they mostly are.
bool lies_exactly_as(const ArrayView& view, const Expected& expected) {
  if (view.ndim != expected.ndim) return false;
  for (int i = 0; i < expected.ndim; ++i) {
    if (view.shape[i] != expected.extent[i] || view.strides[i] != expected.strides[i]) return false;
  }
  return true;
}

bool on_gpu_of(const KernelState& kernel, const ArrayView& view) {
  return view.on_gpu() &&
         (view.device.id == kernel.device || view.device.id < 0 || kernel.device < 0);
}

/// Raises what does not fit. Always returns false.
bool refuse(const KernelState& kernel, const Expected& expected, const ArrayView& view) {
  const char* problem = kernel.problem.c_str();
  const char* name = expected.name.c_str();
  if (!view.on_gpu()) {
    raise(problem, "%s lies on no GPU: its DLPack device type is %d, and %d expected", name,
          view.device.type, dlpack::kCuda);
  } else if (!on_gpu_of(kernel, view)) {
    raise(problem, "%s lies on GPU %d, and the kernel was made for GPU %d", name, view.device.id,
          kernel.device);
  } else if (view.dtype != expected.dtype) {
    const char* given = dtype_name(view.dtype);
    raise(problem, "%s is %s, and %s expected", name,
          given != nullptr ? given : "of a dtype that kernwright does not know",
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
  const bool right = on_gpu_of(kernel, view) && view.dtype == expected.dtype &&
                     (lies_exactly_as(view, expected) || lies_as(view, expected));
  return right || refuse(kernel, expected, view);
}

/// No output may lie where another tensor of the launch lies: kernels read and write in any order.
bool apart(const KernelState& kernel, const void* const* addresses) {
  const auto at = [addresses](std::size_t i) {
    return reinterpret_cast<std::uintptr_t>(addresses[i]);
  };
  for (std::size_t out = 0; out < kernel.tensors; ++out) {
    const Expected& written = kernel.arguments[out];
    if (!written.output) continue;
    for (std::size_t other = 0; other < kernel.tensors; ++other) {
      if (other == out) continue;
      const Expected& beside = kernel.arguments[other];
      if (!may_overlap(at(out), written.footprint, at(other), beside.footprint)) continue;
      raise(kernel.problem.c_str(), "%s overlaps %s in memory, and an output has to lie apart",
            written.name.c_str(), beside.name.c_str());
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
/// the order of the framework's current stream.
class Workspace {
 public:
  Workspace() = default;
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace() {
    if (tensor_ != nullptr && tensor_->deleter != nullptr) tensor_->deleter(tensor_);
  }

  /// False with a Python error set.
  bool take(std::size_t size, const dlpack::ExchangeApi& api, dlpack::Device device) {
    auto bytes = static_cast<std::int64_t>(size);
    std::int64_t stride = 1;
    dlpack::DataType byte{};
    find_dtype("uint8", byte);
    tensor_ = allocate(api, {nullptr, device, 1, byte, &bytes, &stride, 0});
    return tensor_ != nullptr;
  }
  /// Null: the launch takes what it needs from a pool of the driver's.
  void* address() const {
    if (tensor_ == nullptr) return nullptr;
    return static_cast<char*>(tensor_->tensor.data) + tensor_->tensor.byte_offset;
  }

 private:
  dlpack::VersionedTensor* tensor_ = nullptr;
};

/// A number, or a stream of a framework: an object with `__cuda_stream__`, `cuda_stream` (torch) or
/// `ptr` (CuPy). False with a Python error set.
bool read_stream(PyObject* given, void*& stream) {
  Ref number;
  if (const Ref method = attribute_if_there(given, "__cuda_stream__")) {
    const Ref pair(PyObject_CallObject(method.get(), nullptr));
    if (pair) number = Ref(PySequence_GetItem(pair.get(), 1));
  } else {
    for (const char* name : {"cuda_stream", "ptr"}) {
      if (!number && PyErr_Occurred() == nullptr) number = attribute_if_there(given, name);
    }
    if (!number && PyErr_Occurred() == nullptr) number = Ref(PyNumber_Index(given));
  }
  if (!number) return false;
  stream = PyLong_AsVoidPtr(number.get());
  return stream != nullptr || PyErr_Occurred() == nullptr;
}

/// The current stream of a torch that has no exchange API.
bool find_torch_stream(int device, void*& stream) {
  const Ref torch(PyImport_ImportModule("torch.cuda"));
  const Ref current(torch ? PyObject_CallMethod(torch.get(), "current_stream", "i", device)
                          : nullptr);
  return current && read_stream(current.get(), stream);
}

/// The current stream of the framework that the arrays belong to; the default stream where none of
/// them says. False with a Python error set.
bool find_stream(const ArrayView* views, std::size_t count, int device, void*& stream) {
  for (std::size_t i = 0; i < count; ++i) {
    const ArrayView& view = views[i];
    if (view.api != nullptr && view.api->current_stream != nullptr) {
      return view.api->current_stream(dlpack::kCuda, device, &stream) == 0;
    }
    if (view.torch) return find_torch_stream(device, stream);
    if (view.stream == 0) continue;
    stream =
        reinterpret_cast<void*>(view.stream);  // 1 and 2 mean to the driver what they mean here
    return true;
  }
  return true;
}

PyObject* launch(const KernelState& kernel, PyObject* const* given, std::size_t count,
                 PyObject* given_stream) {
  const char* problem = kernel.problem.c_str();
  if (count < kernel.tensors || count > kernel.arguments.size() || kernel.tensors == 0) {
    return raise(problem, "%zu arguments, and %zu tensors and up to %zu scalars expected", count,
                 kernel.tensors, kernel.arguments.size() - kernel.tensors);
  }
  ArrayView views[kMostArguments];
  const void* addresses[kMostArguments];
  double scalars[kMostArguments];
  for (std::size_t i = 0; i < kernel.tensors; ++i) {
    const Expected& expected = kernel.arguments[i];
    if (!read_array(given[i], views[i])) return raise_current(problem, expected.name.c_str());
    if (!fits(kernel, expected, views[i])) return nullptr;
    addresses[i] = views[i].data;
  }
  for (std::size_t i = kernel.tensors; i < count; ++i) {
    scalars[i - kernel.tensors] = PyFloat_AsDouble(given[i]);
    if (PyErr_Occurred() != nullptr)
      return raise_current(problem, kernel.arguments[i].name.c_str());
  }
  if (!apart(kernel, addresses)) return nullptr;
  if (kernel.device < 0) {
    return raise(problem, "the service has no GPU (sku=...), so the kernel cannot be launched");
  }

  void* stream = nullptr;
  Workspace workspace;
  if (given_stream != nullptr && given_stream != Py_None) {
    if (!read_stream(given_stream, stream)) return raise_current(problem, "stream");
  } else {
    if (!find_stream(views, kernel.tensors, kernel.device, stream)) return nullptr;
    // On another stream than the current one the pool could hand it out again too early.
    if (kernel.workspace_bytes > 0 && views[0].api != nullptr &&
        !workspace.take(kernel.workspace_bytes, *views[0].api, views[0].device)) {
      return nullptr;
    }
  }
  for (std::size_t i = 0; i < kernel.tensors; ++i) {
    if (views[i].asks_stream && !announce_stream(given[i], stream)) {
      return raise_current(problem, kernel.arguments[i].name.c_str());
    }
  }

  const ContextScope context(kernel.device);
  if (context.failure() != nullptr) return raise(problem, "%s", context.failure());
  int status = 0;
  {
    const WithoutGil released;  // a launch waits where the queue of its stream is full
    status = kw_launch(kernel.handle, stream, addresses, kernel.tensors, scalars,
                       count - kernel.tensors, workspace.address());
  }
  if (status != 0) return raise(problem, "%s", kw_last_error());
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
  return guarded(
      [&] { return launch(state_of(self), given, static_cast<std::size_t>(count), stream); });
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
  return guarded([&] { return launch(state_of(self), given, count, stream); });
}

/// Fills `expected` from one object of "arguments". False where it is not understood.
bool read_expected(PyObject* described, Expected& expected) {
  if (PyDict_Check(described) == 0) return false;
  const auto text = [described](const char* key, std::string& into) {
    PyObject* value = PyDict_GetItemString(described, key);
    if (value == nullptr || PyUnicode_Check(value) == 0) return false;
    const char* characters = PyUnicode_AsUTF8AndSize(value, nullptr);
    if (characters != nullptr) into = characters;
    return characters != nullptr;
  };
  const auto integers = [described](const char* key, std::int64_t(&into)[kMostDims]) {
    PyObject* list = PyDict_GetItemString(described, key);
    if (list == nullptr || PyList_Check(list) == 0) return -1;
    const Py_ssize_t count = PyList_Size(list);
    if (count > kMostDims) return -1;
    for (Py_ssize_t i = 0; i < count; ++i) into[i] = PyLong_AsLongLong(PyList_GetItem(list, i));
    return PyErr_Occurred() == nullptr ? static_cast<int>(count) : -1;
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

/// The bytes of a tensor whose strides are not negative.
Footprint footprint_of(const Expected& expected) {
  const auto bytes = [&expected](std::int64_t elements) {
    return static_cast<std::uint64_t>(elements) * expected.dtype.bits / 8;
  };
  std::int64_t last = 0;
  std::int64_t run = 1;
  std::int64_t pitch = 0;
  // From the densest dimension on; transposed matrices have that first.
  std::vector<std::size_t> order(static_cast<std::size_t>(expected.ndim));
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&expected](std::size_t i, std::size_t j) {
    return expected.strides[i] < expected.strides[j];
  });
  for (const std::size_t dim : order) {
    const std::int64_t extent = expected.extent[dim];
    const std::int64_t stride = expected.strides[dim];
    if (extent == 0) return {};
    last += (extent - 1) * stride;
    if (extent == 1) continue;
    if (pitch == 0 && stride == run) {
      run *= extent;
    } else {
      pitch = std::gcd(pitch, stride);
    }
  }
  return {bytes(last + 1), bytes(run), bytes(pitch)};
}

constexpr const char* kExpectDoc =
    "_expect(arguments, device)\n\n"
    "Says once what launches take: the list of kw_describe()'s \"arguments\", or a changed copy "
    "of it, and the number of the kernel's GPU, -1 where it cannot be launched.";
PyObject* kernel_expect(PyObject* self, PyObject* given) {
  PyObject* arguments = nullptr;
  int device = -1;
  if (PyArg_ParseTuple(given, "Oi", &arguments, &device) == 0) return nullptr;
  return guarded([&]() -> PyObject* {
    KernelState& state = state_of(self);
    const char* problem = state.problem.c_str();
    if (!state.arguments.empty()) return raise(problem, "it is known already what launches take");
    if (PyList_Check(arguments) == 0) {
      return PyErr_Format(PyExc_TypeError, "arguments is %R, and a list expected",
                          Py_TYPE(arguments));
    }
    const auto count = static_cast<std::size_t>(PyList_Size(arguments));
    if (count > kMostArguments) {
      return raise(problem, "%zu arguments, and at most %zu expected", count, kMostArguments);
    }
    std::vector<Expected> read(count);
    std::size_t tensors = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (!read_expected(PyList_GetItem(arguments, static_cast<Py_ssize_t>(i)), read[i])) {
        PyErr_Clear();
        return raise(problem, "argument %zu is not understood", i);
      }
      if (read[i].scalar) continue;
      if (tensors++ != i) return raise(problem, "argument %zu is a tensor behind a scalar", i);
      read[i].footprint = footprint_of(read[i]);
    }
    state.arguments = std::move(read);
    state.tensors = tensors;
    state.device = device;
    Py_RETURN_NONE;
  });
}

PyObject* kernel_new(PyTypeObject* type, PyObject*, PyObject*) {
  return PyErr_Format(PyExc_TypeError, "%R is made by a service, not by calling it", type);
}

PyObject* kernel_description(PyObject* self, void*) {
  return PyUnicode_FromString(kw_describe(state_of(self).handle));
}

PyObject* kernel_workspace(PyObject* self, void*) {
  return PyLong_FromSize_t(state_of(self).workspace_bytes);
}

PyObject* kernel_handle(PyObject* self, void*) { return PyLong_FromVoidPtr(state_of(self).handle); }

void kernel_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  delete reinterpret_cast<KernelObject*>(self)->state;
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

PyMethodDef kMethods[] = {
    {"launch", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(kernel_launch)),
     METH_FASTCALL | METH_KEYWORDS,
     "launch(*tensors_and_scalars, stream=None)\n\nThe same as calling the kernel."},
    {"_expect", kernel_expect, METH_VARARGS, kExpectDoc},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef kGetters[] = {
    {"_description", kernel_description, nullptr, "kw_describe()'s JSON text.", nullptr},
    {"workspace_bytes", kernel_workspace, nullptr,
     "The device bytes that a launch needs as workspace; often 0.", nullptr},
    {"handle", kernel_handle, nullptr,
     "The address of the C API's kw_kernel, valid while this lives.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot kSlots[] = {{Py_tp_doc, const_cast<char*>("A loaded kernel for one problem.")},
                        {Py_tp_new, reinterpret_cast<void*>(kernel_new)},
                        {Py_tp_dealloc, reinterpret_cast<void*>(kernel_dealloc)},
                        {Py_tp_call, reinterpret_cast<void*>(kernel_call)},
                        {Py_tp_methods, kMethods},
                        {Py_tp_getset, kGetters},
                        {0, nullptr}};

PyType_Spec kSpec = {"kernwright._kernwright.KernelHandle", sizeof(KernelObject), 0,
                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, kSlots};

PyTypeObject* kernel_type = nullptr;  // guarded by the GIL

/// A new tensor by torch's own `new_empty`.
PyObject* allocate_torch(PyObject* like, PyObject* shape, dlpack::DataType dtype) {
  const Ref torch(PyImport_ImportModule("torch"));
  const Ref torch_dtype(torch ? PyObject_GetAttrString(torch.get(), torch_dtype_name(dtype))
                              : nullptr);
  const Ref method(PyObject_GetAttrString(like, "new_empty"));
  const Ref positional(PyTuple_Pack(1, shape));
  const Ref names(PyDict_New());
  if (!torch_dtype || !method || !positional || !names ||
      PyDict_SetItemString(names.get(), "dtype", torch_dtype.get()) != 0) {
    return nullptr;
  }
  return PyObject_Call(method.get(), positional.get(), names.get());
}

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
  if (object != nullptr) reinterpret_cast<KernelObject*>(object)->state = state.release();
  return object;
}

PyObject* allocate_like(PyObject* like, PyObject* shape, const char* dtype) {
  ArrayView view;
  dlpack::Tensor prototype{};
  if (!find_dtype(dtype, prototype.dtype)) {
    return PyErr_Format(PyExc_ValueError, "kernwright has no dtype %s", dtype);
  }
  if (!read_array(like, view)) return nullptr;
  if (view.torch) return allocate_torch(like, shape, prototype.dtype);
  if (view.api == nullptr) {
    return PyErr_Format(PyExc_TypeError,
                        "arrays of %R cannot be made here: give out=", Py_TYPE(like));
  }
  std::int64_t extent[kMostDims];
  std::int64_t strides[kMostDims];
  const Py_ssize_t ndim = PySequence_Size(shape);
  if (ndim < 0) return nullptr;
  if (ndim > kMostDims) {
    return PyErr_Format(PyExc_ValueError, "%zd dimensions, and at most %d expected", ndim,
                        kMostDims);
  }
  for (Py_ssize_t i = 0; i < ndim; ++i) {
    const Ref item(PySequence_GetItem(shape, i));
    if (!item) return nullptr;
    extent[i] = PyLong_AsLongLong(item.get());
    if (PyErr_Occurred() != nullptr) return nullptr;
    if (extent[i] < 0) return PyErr_Format(PyExc_ValueError, "a dimension of size %R", item.get());
  }
  std::int64_t stride = 1;
  for (Py_ssize_t i = ndim - 1; i >= 0; --i) {
    strides[i] = stride;
    if (__builtin_mul_overflow(stride, extent[i] == 0 ? 1 : extent[i], &stride)) {
      return PyErr_Format(PyExc_ValueError, "an array of the shape %R is too large", shape);
    }
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
