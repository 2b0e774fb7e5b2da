#include "python/extension/array_view.h"

#include <cstdlib>
#include <cstring>
#include <string_view>

namespace kernwright::python {
namespace {

struct NamedDtype {
  const char* name;
  dlpack::DataType dtype;
  const char* torch;      ///< what str(tensor.dtype) gives
  const char* interface;  ///< the type string of __cuda_array_interface__, or null
};
constexpr NamedDtype kDtypes[] = {
    {"bf16", {4, 16, 1}, "torch.bfloat16", nullptr},
    {"fp16", {2, 16, 1}, "torch.float16", "<f2"},
    {"fp32", {2, 32, 1}, "torch.float32", "<f4"},
    {"fp64", {2, 64, 1}, "torch.float64", "<f8"},
    {"fp8_e4m3", {10, 8, 1}, "torch.float8_e4m3fn", nullptr},
    {"fp8_e5m2", {12, 8, 1}, "torch.float8_e5m2", nullptr},
    {"int8", {0, 8, 1}, "torch.int8", "|i1"},
    {"int32", {0, 32, 1}, "torch.int32", "<i4"},
    {"int64", {0, 64, 1}, "torch.int64", "<i8"},
    {"uint8", {1, 8, 1}, "torch.uint8", "|u1"},
    {"bool", {6, 8, 1}, "torch.bool", "|b1"},
};

bool equal(dlpack::DataType a, dlpack::DataType b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

/// What each array type offers. Types live as long as the process in practice; the few that were
/// seen are kept alive, so that an address stands for one type.
struct KnownType {
  PyTypeObject* type = nullptr;
  const dlpack::ExchangeApi* api = nullptr;
};
constexpr int kMostTypes = 16;
KnownType known_types[kMostTypes];
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

/// Called with the GIL held, which guards the list.
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

/// Strides of a contiguous array.
void make_contiguous(ArrayView& view) {
  std::int64_t stride = 1;
  for (int i = view.ndim - 1; i >= 0; --i) {
    view.strides[i] = stride;
    stride *= view.shape[i];
  }
}

bool take_tensor(const dlpack::Tensor& tensor, ArrayView& view) {
  if (!fits_dims(tensor.ndim)) return false;
  view.data = static_cast<char*>(tensor.data) + tensor.byte_offset;
  view.dtype = tensor.dtype;
  view.device = tensor.device;
  view.ndim = tensor.ndim;
  for (int i = 0; i < view.ndim; ++i) view.shape[i] = tensor.shape[i];
  if (tensor.strides == nullptr) {
    make_contiguous(view);
  } else {
    for (int i = 0; i < view.ndim; ++i) view.strides[i] = tensor.strides[i];
  }
  return true;
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

/// Whether the text of `object` is `expected`.
bool text_is(PyObject* object, const char* expected) {
  const Ref text(PyObject_Str(object));
  if (text) return PyUnicode_CompareWithASCIIString(text.get(), expected) == 0;
  PyErr_Clear();
  return false;
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
  view.ndim = read_integers(shape.get(), view.shape);
  if (view.ndim < 0 || read_integers(strides.get(), view.strides) != view.ndim) return false;
  for (const NamedDtype& named : kDtypes) {
    if (text_is(dtype.get(), named.torch)) view.dtype = named.dtype;
  }
  const Ref type(PyObject_GetAttrString(device.get(), "type"));
  const Ref index(PyObject_GetAttrString(device.get(), "index"));
  if (!type || !index) return false;
  view.device.type = text_is(type.get(), "cuda") ? dlpack::kCuda : 1;
  view.device.id = index.get() == Py_None ? 0 : static_cast<int>(PyLong_AsLong(index.get()));
  return PyErr_Occurred() == nullptr;
}

/// `__cuda_array_interface__`, version 2 and 3. Its arrays lie on the current device.
bool read_interface(PyObject* interface, ArrayView& view) {
  const auto item = [&](const char* key) { return PyDict_GetItemString(interface, key); };
  PyObject* data = PyDict_Check(interface) != 0 ? item("data") : nullptr;
  PyObject* shape = data != nullptr ? item("shape") : nullptr;
  PyObject* type = data != nullptr ? item("typestr") : nullptr;
  if (shape == nullptr || type == nullptr) {
    PyErr_SetString(PyExc_TypeError, "__cuda_array_interface__ lacks data, shape or typestr");
    return false;
  }
  const Ref address(PySequence_GetItem(data, 0));
  if (!address) return false;
  view.data = PyLong_AsVoidPtr(address.get());
  if (view.data == nullptr && PyErr_Occurred() != nullptr) return false;
  view.ndim = read_integers(shape, view.shape);
  if (view.ndim < 0) return false;
  for (const NamedDtype& named : kDtypes) {
    if (named.interface != nullptr && text_is(type, named.interface)) view.dtype = named.dtype;
  }
  PyObject* strides = item("strides");
  if (strides == nullptr || strides == Py_None) {
    make_contiguous(view);
  } else {
    if (read_integers(strides, view.strides) != view.ndim) return false;
    const int bytes = view.dtype.bits == 0 ? 1 : view.dtype.bits / 8;
    for (int i = 0; i < view.ndim; ++i) view.strides[i] /= bytes;
  }
  view.device = {dlpack::kCuda, -1};
  return true;
}

/// `__dlpack__` without a stream: the caller orders the work. The capsule that comes back keeps the
/// array's memory, which the array itself keeps too, so it is given back at once.
bool read_capsule(PyObject* array, ArrayView& view) {
  const Ref method(PyObject_GetAttrString(array, "__dlpack__"));
  const Ref none(PyTuple_New(0));
  const Ref names(PyDict_New());
  const Ref no_wait(PyLong_FromLong(-1));
  if (!method || !none || !names || !no_wait) return false;
  const Ref place(PyObject_CallMethod(array, "__dlpack_device__", nullptr));
  std::int64_t device[kMostDims] = {};
  if (!place || read_integers(place.get(), device) != 2) return false;
  const bool on_gpu = device[0] == dlpack::kCuda || device[0] == dlpack::kCudaManaged;
  if (on_gpu && PyDict_SetItemString(names.get(), "stream", no_wait.get()) != 0) return false;
  const Ref capsule(PyObject_Call(method.get(), none.get(), names.get()));
  if (!capsule) return false;
  if (PyCapsule_IsValid(capsule.get(), dlpack::kTensorCapsule) != 0) {
    return take_tensor(static_cast<dlpack::ManagedTensor*>(
                           PyCapsule_GetPointer(capsule.get(), dlpack::kTensorCapsule))
                           ->tensor,
                       view);
  }
  if (PyCapsule_IsValid(capsule.get(), dlpack::kVersionedTensorCapsule) != 0) {
    return take_tensor(static_cast<dlpack::VersionedTensor*>(
                           PyCapsule_GetPointer(capsule.get(), dlpack::kVersionedTensorCapsule))
                           ->tensor,
                       view);
  }
  PyErr_SetString(PyExc_TypeError, "__dlpack__ gave no capsule of a tensor");
  return false;
}

}  // namespace

bool read_array(PyObject* array, ArrayView& view) {
  PyTypeObject* type = Py_TYPE(array);
  if (view.api = api_of(type); view.api != nullptr) {
    dlpack::Tensor tensor{};
    return view.api->borrow(array, &tensor) == 0 && take_tensor(tensor, view);
  }
  if (attribute_if_there(array, "data_ptr")) return read_attributes(array, view);
  if (const Ref interface = attribute_if_there(array, "__cuda_array_interface__")) {
    return read_interface(interface.get(), view);
  }
  if (PyErr_Occurred() != nullptr) return false;
  if (attribute_if_there(array, "__dlpack__")) return read_capsule(array, view);
  if (PyErr_Occurred() == nullptr) {
    PyErr_Format(PyExc_TypeError,
                 "%R is no array: it has neither DLPack nor "
                 "__cuda_array_interface__",
                 type);
  }
  return false;
}

const char* dtype_name(dlpack::DataType dtype) {
  for (const NamedDtype& named : kDtypes) {
    if (equal(named.dtype, dtype)) return named.name;
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

ByteRange bytes_of(const ArrayView& view) {
  std::int64_t first = 0, last = 0;
  for (int i = 0; i < view.ndim; ++i) {
    if (view.shape[i] == 0) return {};
    const std::int64_t reach = (view.shape[i] - 1) * view.strides[i];
    (reach < 0 ? first : last) += reach;
  }
  const auto base = reinterpret_cast<std::uintptr_t>(view.data);
  const std::int64_t bytes = view.dtype.bits / 8;
  return {base + static_cast<std::uintptr_t>(first * bytes),
          base + static_cast<std::uintptr_t>((last + 1) * bytes)};
}

}  // namespace kernwright::python
