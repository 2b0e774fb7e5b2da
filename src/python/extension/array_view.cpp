#include "python/extension/array_view.h"

#include <string>
#include <string_view>

#include "python/extension/driver_context.h"

namespace kernwright::python {
namespace {

struct NamedDtype {
  const char* name;
  dlpack::DataType dtype;
  const char* torch;      ///< its name in torch
  const char* interface;  ///< the type string of __cuda_array_interface__, or null
};
constexpr NamedDtype kDtypes[] = {
    {"bf16", {4, 16, 1}, "bfloat16", nullptr},
    {"fp16", {2, 16, 1}, "float16", "<f2"},
    {"fp32", {2, 32, 1}, "float32", "<f4"},
    {"fp64", {2, 64, 1}, "float64", "<f8"},
    {"fp8_e4m3", {10, 8, 1}, "float8_e4m3fn", nullptr},
    {"fp8_e5m2", {12, 8, 1}, "float8_e5m2", nullptr},
    {"int8", {0, 8, 1}, "int8", "|i1"},
    {"int32", {0, 32, 1}, "int32", "<i4"},
    {"int64", {0, 64, 1}, "int64", "<i8"},
    {"uint8", {1, 8, 1}, "uint8", "|u1"},
    {"bool", {6, 8, 1}, "bool", "|b1"},
};

/// What an array type offers. Types live as long as the process in practice. The first few that
/// are seen are kept alive, so that an address stands for one type.
struct KnownType {
  PyTypeObject* type = nullptr;
  const dlpack::ExchangeApi* api = nullptr;
};
constexpr int kMostTypes = 16;
KnownType known_types[kMostTypes];  // guarded by the GIL
int known_count = 0;

/// The exchange API of a type in the version that is understood here, or null.
const dlpack::ExchangeApi* read_api(PyTypeObject* type) {
  const Ref capsule =
      attribute_if_there(reinterpret_cast<PyObject*>(type), "__dlpack_c_exchange_api__");
  if (!capsule || PyCapsule_IsValid(capsule.get(), dlpack::kExchangeCapsule) == 0) return nullptr;
  auto* header = static_cast<dlpack::ExchangeHeader*>(
      PyCapsule_GetPointer(capsule.get(), dlpack::kExchangeCapsule));
  while (header != nullptr && header->version.major != dlpack::kMajorVersion) {
    header = header->previous;
  }
  const auto* api = reinterpret_cast<const dlpack::ExchangeApi*>(header);
  return api != nullptr && api->borrow != nullptr ? api : nullptr;
}

const dlpack::ExchangeApi* api_of(PyTypeObject* type) {
  for (int i = 0; i < known_count; ++i) {
    if (known_types[i].type == type) return known_types[i].api;
  }
  const dlpack::ExchangeApi* api = read_api(type);
  if (known_count < kMostTypes) {
    Py_INCREF(type);
    known_types[known_count++] = {type, api};
  }
  return api;
}

bool fits_dims(Py_ssize_t ndim) {
  if (ndim <= kMostDims) return true;
  PyErr_Format(PyExc_ValueError, "an array of %zd dimensions; at most %d are taken", ndim,
               kMostDims);
  return false;
}

/// Strides of a contiguous array, whose shape is known.
void make_contiguous(ArrayView& view) {
  std::uint64_t stride = 1;  // what no array has may overflow here, and is refused by its shape
  for (int i = view.ndim - 1; i >= 0; --i) {
    view.held[1][i] = static_cast<std::int64_t>(stride);
    stride *= static_cast<std::uint64_t>(view.shape[i]);
  }
  view.strides = view.held[1];
}

/// Borrows shape and strides from `tensor`.
bool take_tensor(const dlpack::Tensor& tensor, ArrayView& view) {
  if (!fits_dims(tensor.ndim)) return false;
  view.data = static_cast<char*>(tensor.data) + tensor.byte_offset;
  view.dtype = tensor.dtype;
  view.device = tensor.device;
  view.ndim = tensor.ndim;
  view.shape = tensor.shape;
  view.strides = tensor.strides;
  if (tensor.strides == nullptr) make_contiguous(view);
  return true;
}

/// Keeps shape and strides, so that they outlive what they were borrowed from.
void hold(ArrayView& view) {
  for (int i = 0; i < view.ndim; ++i) {
    view.held[0][i] = view.shape[i];
    view.held[1][i] = view.strides[i];
  }
  view.shape = view.held[0];
  view.strides = view.held[1];
}

/// The items of a sequence of integers. Returns their number, or -1 with an error.
int read_integers(PyObject* sequence, std::int64_t (&items)[kMostDims]) {
  const Py_ssize_t count = PySequence_Size(sequence);
  if (count < 0 || !fits_dims(count)) return -1;
  for (Py_ssize_t i = 0; i < count; ++i) {
    const Ref item(PySequence_GetItem(sequence, i));
    if (!item) return -1;
    items[i] = PyLong_AsLongLong(item.get());
    if (items[i] == -1 && PyErr_Occurred() != nullptr) return -1;
  }
  return static_cast<int>(count);
}

/// Whether the text of `object` is `prefix` and then `expected`.
bool text_is(PyObject* object, const char* expected, std::string_view prefix = {}) {
  const Ref text(PyObject_Str(object));
  Py_ssize_t size = 0;
  const char* characters = text ? PyUnicode_AsUTF8AndSize(text.get(), &size) : nullptr;
  if (characters == nullptr) {
    PyErr_Clear();
    return false;
  }
  std::string_view given(characters, static_cast<std::size_t>(size));
  if (!given.starts_with(prefix)) return false;
  given.remove_prefix(prefix.size());
  return given == expected;
}

/// A tensor of a torch without the exchange API.
bool read_attributes(PyObject* array, ArrayView& view) {
  const Ref address(PyObject_CallMethod(array, "data_ptr", nullptr));
  const Ref shape(PyObject_GetAttrString(array, "shape"));
  const Ref strides(PyObject_CallMethod(array, "stride", nullptr));
  const Ref dtype(PyObject_GetAttrString(array, "dtype"));
  const Ref device(PyObject_GetAttrString(array, "device"));
  if (!address || !shape || !strides || !dtype || !device) return false;
  view.data = PyLong_AsVoidPtr(address.get());
  if (view.data == nullptr && PyErr_Occurred() != nullptr) return false;
  view.ndim = read_integers(shape.get(), view.held[0]);
  if (view.ndim < 0) return false;
  const int strides_read = read_integers(strides.get(), view.held[1]);
  if (strides_read < 0) return false;
  if (strides_read != view.ndim) {
    PyErr_SetString(PyExc_TypeError, "shape and stride() have other lengths");
    return false;
  }
  view.shape = view.held[0];
  view.strides = view.held[1];
  view.dtype = {};
  for (const NamedDtype& named : kDtypes) {
    if (text_is(dtype.get(), named.torch, "torch.")) view.dtype = named.dtype;
  }
  const Ref type(PyObject_GetAttrString(device.get(), "type"));
  const Ref index(PyObject_GetAttrString(device.get(), "index"));
  if (!type || !index) return false;
  view.device.type = text_is(type.get(), "cuda") ? dlpack::kCuda : dlpack::kCpu;
  view.device.id = index.get() == Py_None ? 0 : static_cast<int>(PyLong_AsLong(index.get()));
  view.torch = true;
  return PyErr_Occurred() == nullptr;
}

/// `__cuda_array_interface__`, version 2 and 3.
bool read_interface(PyObject* interface, ArrayView& view) {
  const auto item = [&](const char* key) -> PyObject* {
    return PyDict_Check(interface) != 0 ? PyDict_GetItemString(interface, key) : nullptr;
  };
  PyObject* data = item("data");
  PyObject* shape = item("shape");
  PyObject* type = item("typestr");
  if (data == nullptr || shape == nullptr || type == nullptr) {
    PyErr_SetString(PyExc_TypeError, "__cuda_array_interface__ lacks data, shape or typestr");
    return false;
  }
  const Ref address(PySequence_GetItem(data, 0));
  if (!address) return false;
  view.data = PyLong_AsVoidPtr(address.get());
  if (view.data == nullptr && PyErr_Occurred() != nullptr) return false;
  view.ndim = read_integers(shape, view.held[0]);
  if (view.ndim < 0) return false;
  view.shape = view.held[0];
  view.dtype = {};
  for (const NamedDtype& named : kDtypes) {
    if (named.interface != nullptr && text_is(type, named.interface)) view.dtype = named.dtype;
  }
  if (PyObject* mask = item("mask"); mask != nullptr && mask != Py_None) {
    PyErr_SetString(PyExc_TypeError, "it has a mask, and arrays without one are taken");
    return false;
  }
  // A pair of address and whether nothing may write there.
  if (PyTuple_Check(data) != 0 && PyTuple_Size(data) > 1) {
    const int read_only = PyObject_IsTrue(PyTuple_GetItem(data, 1));
    if (read_only < 0) return false;
    view.read_only = read_only != 0;
  }
  PyObject* strides = item("strides");
  if (strides == nullptr || strides == Py_None) {
    make_contiguous(view);
  } else {
    const int strides_read = read_integers(strides, view.held[1]);
    if (strides_read < 0) return false;
    if (strides_read != view.ndim) {
      PyErr_SetString(PyExc_TypeError, "shape and strides have other lengths");
      return false;
    }
    const int bytes = view.dtype.bits == 0 ? 1 : view.dtype.bits / 8;
    for (int i = 0; i < view.ndim; ++i) {
      std::int64_t& stride = view.held[1][i];
      if (stride % bytes != 0) {
        PyErr_Format(PyExc_ValueError,
                     "a stride of %lld bytes, and a multiple of the %d of an element expected",
                     static_cast<long long>(stride), bytes);
        return false;
      }
      stride /= bytes;
    }
    view.strides = view.held[1];
  }
  view.device = {dlpack::kCuda, device_of(view.data)};
  PyObject* stream = item("stream");
  if (stream != nullptr && stream != Py_None) view.stream = PyLong_AsSsize_t(stream);
  return PyErr_Occurred() == nullptr;
}

/// What `__dlpack__` gives. `stream` is as DLPack counts: -1 where nobody is to wait, 1 for the
/// default stream.
Ref exported(PyObject* array, bool on_gpu, std::intptr_t stream) {
  const Ref method(PyObject_GetAttrString(array, "__dlpack__"));
  const Ref none(PyTuple_New(0));
  const Ref names(PyDict_New());
  const Ref number(PyLong_FromSsize_t(stream));
  if (!method || !none || !names || !number) return Ref();
  if (on_gpu && PyDict_SetItemString(names.get(), "stream", number.get()) != 0) return Ref();
  return Ref(PyObject_Call(method.get(), none.get(), names.get()));
}

/// The capsule keeps the array's memory, which the array itself keeps too. So it is given back at
/// once.
bool read_capsule(PyObject* array, ArrayView& view) {
  const Ref place(PyObject_CallMethod(array, "__dlpack_device__", nullptr));
  std::int64_t device[kMostDims] = {};
  if (!place) return false;
  const int count = read_integers(place.get(), device);
  if (count < 0) return false;
  const bool on_gpu = device[0] == dlpack::kCuda || device[0] == dlpack::kCudaManaged;
  const Ref capsule = exported(array, on_gpu, -1);
  if (!capsule) return false;
  view.asks_stream = on_gpu;
  const dlpack::Tensor* tensor = nullptr;
  if (PyCapsule_IsValid(capsule.get(), dlpack::kTensorCapsule) != 0) {
    tensor = &static_cast<dlpack::ManagedTensor*>(
                  PyCapsule_GetPointer(capsule.get(), dlpack::kTensorCapsule))
                  ->tensor;
  } else if (PyCapsule_IsValid(capsule.get(), dlpack::kVersionedTensorCapsule) != 0) {
    const auto* versioned = static_cast<dlpack::VersionedTensor*>(
        PyCapsule_GetPointer(capsule.get(), dlpack::kVersionedTensorCapsule));
    if (versioned->version.major == dlpack::kMajorVersion) tensor = &versioned->tensor;
  }
  if (tensor == nullptr) {
    PyErr_SetString(PyExc_TypeError, "__dlpack__ gave no capsule of a tensor that is understood");
    return false;
  }
  if (!take_tensor(*tensor, view)) return false;
  hold(view);
  return true;
}

/// Torch's errors that did not come through Python end in a trace of C++, which goes.
void cut_trace() {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  const Ref text(value == nullptr ? nullptr : PyObject_Str(value));
  const char* characters = text ? PyUnicode_AsUTF8AndSize(text.get(), nullptr) : nullptr;
  const std::string_view said = characters == nullptr ? "" : characters;
  const std::size_t end = said.find("\nException raised from ");
  if (end == std::string_view::npos) {
    if (PyErr_Occurred() != nullptr) PyErr_Clear();
    PyErr_Restore(type, value, trace);
    return;
  }
  PyErr_SetString(type, std::string(said.substr(0, end)).c_str());
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(trace);
}

/// Whether it has what `read_attributes` reads.
bool is_torch_tensor(PyObject* array) {
  return attribute_if_there(array, "data_ptr") && attribute_if_there(array, "stride") &&
         attribute_if_there(array, "device");
}

}  // namespace

bool read_array(PyObject* array, ArrayView& view) {
  view.torch = view.asks_stream = view.read_only = false;
  view.stream = 0;
  view.api = api_of(Py_TYPE(array));
  if (view.api != nullptr) [[likely]] {
    dlpack::Tensor tensor{};
    if (view.api->borrow(array, &tensor) != 0) [[unlikely]] {
      cut_trace();
      return false;
    }
    return take_tensor(tensor, view);
  }
  if (is_torch_tensor(array)) return read_attributes(array, view);
  if (PyErr_Occurred() != nullptr) return false;
  if (const Ref interface = attribute_if_there(array, "__cuda_array_interface__")) {
    return read_interface(interface.get(), view);
  }
  if (PyErr_Occurred() != nullptr) return false;
  if (attribute_if_there(array, "__dlpack__")) return read_capsule(array, view);
  if (PyErr_Occurred() == nullptr) {
    PyErr_Format(PyExc_TypeError,
                 "%R is no array: it has neither DLPack nor __cuda_array_interface__",
                 Py_TYPE(array));
  }
  return false;
}

bool announce_stream(PyObject* array, const void* stream) {
  const auto number = reinterpret_cast<std::intptr_t>(stream);
  return static_cast<bool>(exported(array, true, number == 0 ? 1 : number));
}

const char* dtype_name(dlpack::DataType dtype) {
  for (const NamedDtype& named : kDtypes) {
    if (named.dtype == dtype) return named.name;
  }
  return nullptr;
}

bool find_dtype(const char* name, dlpack::DataType& dtype) {
  for (const NamedDtype& named : kDtypes) {
    if (std::string_view(named.name) != name) continue;
    dtype = named.dtype;
    return true;
  }
  return false;
}

const char* torch_dtype_name(dlpack::DataType dtype) {
  for (const NamedDtype& named : kDtypes) {
    if (named.dtype == dtype) return named.torch;
  }
  return nullptr;
}

}  // namespace kernwright::python
