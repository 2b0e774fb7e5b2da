#include "python/extension/arrays/array_view.h"

#include <climits>
#include <string>
#include <string_view>

#include "python/extension/arrays/driver_context.h"
#include "python/extension/arrays/torch_tensor.h"
#include "python/extension/errors.h"

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

/// The facts about an array type.
struct KnownType {
  PyTypeObject* type = nullptr;
  const dlpack::ExchangeApi* api = nullptr;
  bool is_tensor = false;
};
// Types live as long as the process in practice. The first few that are seen are kept alive, so
// that an address identifies one type.
constexpr int kMostTypes = 16;
KnownType known_types[kMostTypes];  // guarded by the GIL
int known_count = 0;

/// Returns the exchange API of a type in the version that is understood here, or null. The capsule
/// that holds it goes to `holder`.
const dlpack::ExchangeApi* read_api(PyTypeObject* type, Ref& holder) {
  holder = attribute_if_there(reinterpret_cast<PyObject*>(type), "__dlpack_c_exchange_api__");
  if (!holder || PyCapsule_IsValid(holder.get(), dlpack::kExchangeCapsule) == 0) return nullptr;
  auto* header = static_cast<dlpack::ExchangeHeader*>(
      PyCapsule_GetPointer(holder.get(), dlpack::kExchangeCapsule));
  // The limit is more versions than there will be, so that a cycle ends too.
  for (int i = 0; i < 64 && header != nullptr; ++i, header = header->previous) {
    if (header->version.major != dlpack::kMajorVersion) continue;
    const auto* api = reinterpret_cast<const dlpack::ExchangeApi*>(header);
    return api->borrow != nullptr ? api : nullptr;
  }
  return nullptr;
}

/// Returns false with a Python error set.
bool know(PyTypeObject* type, KnownType& known, Kept& kept) {
  for (int i = 0; i < known_count; ++i) {
    known = known_types[i];
    if (known.type == type) return true;
  }
  Ref holder;
  known = {type, read_api(type, holder), is_tensor_type(type)};
  if (PyErr_Occurred() != nullptr) return false;
  if (known_count == kMostTypes) return !holder || kept.add(holder.get());
  Py_INCREF(type);
  holder.release();
  known_types[known_count++] = known;
  return true;
}

bool fits_dims(Py_ssize_t ndim) {
  if (ndim >= 0 && ndim <= kMostDims) return true;
  PyErr_Format(PyExc_ValueError, "an array of %zd dimensions; 0 to %d are taken", ndim, kMostDims);
  return false;
}

/// Sets the strides of a contiguous array whose shape is known.
void make_contiguous(ArrayView& view) {
  std::uint64_t stride = 1;  // may overflow for shapes that no array has; they are refused
  for (int i = view.ndim - 1; i >= 0; --i) {
    view.strides[i] = static_cast<std::int64_t>(stride);
    stride *= static_cast<std::uint64_t>(view.shape[i]);
  }
}

/// Returns true if shape and address are valid for an array.
bool is_sound(const ArrayView& view) {
  std::int64_t signs = 0;
  bool is_empty = false;
  for (int i = 0; i < view.ndim; ++i) {
    signs |= view.shape[i];
    is_empty = is_empty || view.shape[i] == 0;
  }
  if (signs < 0) {
    PyErr_SetString(PyExc_ValueError, "one of its sizes is negative");
    return false;
  }
  if (view.data == nullptr && !is_empty) [[unlikely]] {
    PyErr_SetString(PyExc_ValueError, "its address is 0: it has no memory of its own");
    return false;
  }
  return true;
}

bool take_tensor(const dlpack::Tensor& tensor, ArrayView& view) {
  if (!fits_dims(tensor.ndim)) return false;
  if (tensor.shape == nullptr && tensor.ndim > 0) {
    PyErr_SetString(PyExc_TypeError, "its DLPack tensor has dimensions and no shape");
    return false;
  }
  const auto base = reinterpret_cast<std::uintptr_t>(tensor.data);
  if (tensor.byte_offset > UINTPTR_MAX - base || tensor.device.id < 0) {
    PyErr_Format(PyExc_ValueError,
                 "its DLPack tensor begins %llu bytes behind its address, on device %d",
                 static_cast<unsigned long long>(tensor.byte_offset), tensor.device.id);
    return false;
  }
  view.data = reinterpret_cast<void*>(base + tensor.byte_offset);
  view.dtype = tensor.dtype;
  view.device = tensor.device;
  view.ndim = tensor.ndim;
  // The shape is copied, since reading the next argument may run code that resizes this array.
  for (int i = 0; i < tensor.ndim; ++i) view.shape[i] = tensor.shape[i];
  if (tensor.strides == nullptr) {
    make_contiguous(view);
  } else {
    for (int i = 0; i < tensor.ndim; ++i) view.strides[i] = tensor.strides[i];
  }
  return is_sound(view);
}

/// Reads the items of a sequence of integers. Returns their number, or -1 with an error.
int read_integers(PyObject* sequence, std::int64_t (&items)[kMostDims]) {
  const Py_ssize_t count = PySequence_Size(sequence);
  if (count < 0 || !fits_dims(count)) return -1;
  for (Py_ssize_t i = 0; i < count; ++i) {
    const Ref item(PySequence_GetItem(sequence, i));
    if (!item) return -1;
    const long long value = PyLong_AsLongLong(item.get());
    if (value == -1 && PyErr_Occurred() != nullptr) return -1;
    items[i] = value;
  }
  return static_cast<int>(count);
}

/// Reads `str(object)`. Returns false with a Python error set.
bool read_str(PyObject* object, std::string& characters) {
  const Ref text(PyObject_Str(object));
  return text && read_text(text.get(), characters);
}

/// Reads a tensor of a torch without the exchange API.
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
  if (view.ndim < 0) return false;
  const int strides_read = read_integers(strides.get(), view.strides);
  if (strides_read < 0) return false;
  if (strides_read != view.ndim) {
    PyErr_SetString(PyExc_TypeError, "shape and stride() have other lengths");
    return false;
  }
  std::string text;
  if (!read_str(dtype.get(), text)) return false;
  for (const NamedDtype& named : kDtypes) {
    if (text == std::string("torch.") + named.torch) view.dtype = named.dtype;
  }
  const Ref type(PyObject_GetAttrString(device.get(), "type"));
  const Ref index(PyObject_GetAttrString(device.get(), "index"));
  if (!type || !index || !read_str(type.get(), text)) return false;
  view.device.type = text == "cuda" ? dlpack::kCuda : dlpack::kCpu;
  const long id = index.get() == Py_None ? 0 : PyLong_AsLong(index.get());
  if (PyErr_Occurred() != nullptr) return false;
  if (id < 0 || id > INT_MAX) {
    PyErr_Format(PyExc_ValueError, "its device has the number %ld", id);
    return false;
  }
  view.device.id = static_cast<int>(id);
  view.asks_torch = true;
  return is_sound(view);
}

/// Reads `__cuda_array_interface__`, version 2 and 3. Reading its entries may run code that changes
/// it.
bool read_interface(PyObject* interface, ArrayView& view) {
  const auto item = [&](const char* key) {
    return Ref::to(PyDict_Check(interface) != 0 ? PyDict_GetItemString(interface, key) : nullptr);
  };
  const Ref data = item("data"), shape = item("shape"), type = item("typestr");
  const Ref mask = item("mask"), strides = item("strides"), stream = item("stream");
  const auto is_there = [](const Ref& entry) { return entry && entry.get() != Py_None; };
  if (!data || !shape || !type) {
    PyErr_SetString(PyExc_TypeError, "__cuda_array_interface__ lacks data, shape or typestr");
    return false;
  }
  if (is_there(mask)) {
    PyErr_SetString(PyExc_TypeError, "it has a mask, and arrays without one are taken");
    return false;
  }
  // The entry is a pair of the address and a flag that forbids writing there.
  const Ref address(PySequence_GetItem(data.get(), 0));
  if (!address) return false;
  view.data = PyLong_AsVoidPtr(address.get());
  if (view.data == nullptr && PyErr_Occurred() != nullptr) return false;
  const Py_ssize_t parts = PySequence_Size(data.get());
  if (parts < 0) return false;
  if (parts > 1) {
    const Ref flag(PySequence_GetItem(data.get(), 1));
    const int read_only = flag ? PyObject_IsTrue(flag.get()) : -1;
    if (read_only < 0) return false;
    view.read_only = read_only != 0;
  }
  view.ndim = read_integers(shape.get(), view.shape);
  if (view.ndim < 0) return false;
  std::string text;
  if (!read_str(type.get(), text)) return false;
  for (const NamedDtype& named : kDtypes) {
    if (named.interface != nullptr && text == named.interface) view.dtype = named.dtype;
  }
  if (!is_there(strides)) {
    make_contiguous(view);
  } else {
    const int strides_read = read_integers(strides.get(), view.strides);
    if (strides_read < 0) return false;
    if (strides_read != view.ndim) {
      PyErr_SetString(PyExc_TypeError, "shape and strides have other lengths");
      return false;
    }
    const int bytes = view.dtype.bits == 0 ? 1 : view.dtype.bits / 8;
    for (int i = 0; i < view.ndim; ++i) {
      std::int64_t& stride = view.strides[i];
      if (stride % bytes != 0) {
        PyErr_Format(PyExc_ValueError,
                     "a stride of %lld bytes, and a multiple of the %d of an element expected",
                     static_cast<long long>(stride), bytes);
        return false;
      }
      stride /= bytes;
    }
  }
  view.device = {dlpack::kCuda, device_of(view.data)};
  if (is_there(stream)) view.stream = PyLong_AsSsize_t(stream.get());
  return PyErr_Occurred() == nullptr && is_sound(view);
}

/// Returns the result of `__dlpack__`. `stream` is as DLPack counts: -1 if nobody needs to wait, 1
/// for the default stream.
Ref exported(PyObject* array, bool on_gpu, std::intptr_t stream) {
  const Ref method(PyObject_GetAttrString(array, "__dlpack__"));
  const Ref none(PyTuple_New(0));
  const Ref names(PyDict_New());
  const Ref number(PyLong_FromSsize_t(stream));
  if (!method || !none || !names || !number) return Ref();
  if (on_gpu && PyDict_SetItemString(names.get(), "stream", number.get()) != 0) return Ref();
  return Ref(PyObject_Call(method.get(), none.get(), names.get()));
}

bool read_capsule(PyObject* array, ArrayView& view, Kept& kept) {
  const Ref place(PyObject_CallMethod(array, "__dlpack_device__", nullptr));
  std::int64_t device[kMostDims] = {};
  if (!place) return false;
  const int count = read_integers(place.get(), device);
  if (count < 0) return false;
  const bool on_gpu = device[0] == dlpack::kCuda || device[0] == dlpack::kCudaManaged;
  const Ref capsule = exported(array, on_gpu, -1);
  if (!capsule || !kept.add(capsule.get())) return false;
  view.asks_stream = on_gpu;
  const dlpack::Tensor* tensor = nullptr;
  if (PyCapsule_IsValid(capsule.get(), dlpack::kTensorCapsule) != 0) {
    tensor = &static_cast<dlpack::ManagedTensor*>(
                  PyCapsule_GetPointer(capsule.get(), dlpack::kTensorCapsule))
                  ->tensor;
  } else if (PyCapsule_IsValid(capsule.get(), dlpack::kVersionedTensorCapsule) != 0) {
    const auto* versioned = static_cast<dlpack::VersionedTensor*>(
        PyCapsule_GetPointer(capsule.get(), dlpack::kVersionedTensorCapsule));
    if (versioned->version.major == dlpack::kMajorVersion) {
      tensor = &versioned->tensor;
      view.read_only = (versioned->flags & (dlpack::kReadOnly | dlpack::kCopied)) != 0;
    }
  }
  if (tensor == nullptr) {
    PyErr_SetString(PyExc_TypeError, "__dlpack__ gave no capsule of a tensor that is understood");
    return false;
  }
  return take_tensor(*tensor, view);
}

/// Removes the C++ trace from torch's errors that did not come through Python.
void cut_trace() {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  Ref owned_type(type), owned_value(value), owned_trace(trace);
  std::string said;
  if (value == nullptr || !read_str(value, said)) PyErr_Clear();
  const std::size_t end = said.find("\nException raised from ");
  if (end == std::string::npos) {
    PyErr_Restore(owned_type.release(), owned_value.release(), owned_trace.release());
  } else {
    PyErr_SetString(type, said.substr(0, end).c_str());
  }
  if (PyErr_Occurred() == nullptr) PyErr_SetString(PyExc_TypeError, "DLPack gave no tensor");
}

/// Returns true if it has the attributes that `read_attributes` reads.
bool is_torch_tensor(PyObject* array) {
  return attribute_if_there(array, "data_ptr") && attribute_if_there(array, "stride") &&
         attribute_if_there(array, "device");
}

/// Returns true if the memory of a tensor of PyTorch has its values. Only views of imaginary parts
/// negate, and a tensor of another dtype is not asked, as that costs more than reading it.
bool has_values(PyObject* array, const ArrayView& view) {
  constexpr std::uint8_t kFloat = 2;  // kDLFloat: fp16, fp32 and fp64
  return !view.is_tensor || view.dtype.code != kFloat || holds_values(array);
}

/// The depth of nested reads: an array may run code that reads arrays.
class Nesting {
 public:
  Nesting() { ++depth_; }
  ~Nesting() { --depth_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

  /// Returns false with a Python error set. Python's own limit leaves room only for its own frames.
  bool fits() const {
    if (depth_ <= 32) [[likely]]
      return true;
    PyErr_SetString(PyExc_RecursionError,
                    "arrays that read arrays, more than 32 within each other");
    return false;
  }

 private:
  static thread_local int depth_;
};
thread_local int Nesting::depth_ = 0;

}  // namespace

bool read_array(PyObject* array, ArrayView& view, Kept& kept) {
  const Nesting nesting;
  KnownType known;
  if (!nesting.fits() || !know(Py_TYPE(array), known, kept)) return false;
  view.api = known.api;
  view.is_tensor = known.is_tensor;
  if (known.api != nullptr) [[likely]] {
    dlpack::Tensor tensor{};
    if (known.api->borrow(array, &tensor) != 0) [[unlikely]] {
      cut_trace();
      return false;
    }
    return take_tensor(tensor, view) && has_values(array, view);
  }
  if (is_torch_tensor(array)) {
    return read_attributes(array, view) && has_values(array, view);
  }
  if (PyErr_Occurred() != nullptr) return false;
  if (const Ref interface = attribute_if_there(array, "__cuda_array_interface__")) {
    return kept.add(interface.get()) && read_interface(interface.get(), view);
  }
  if (PyErr_Occurred() != nullptr) return false;
  if (attribute_if_there(array, "__dlpack__")) return read_capsule(array, view, kept);
  if (PyErr_Occurred() == nullptr) {
    PyErr_Format(PyExc_TypeError,
                 "%R is no array: it has neither DLPack nor __cuda_array_interface__",
                 Py_TYPE(array));
  }
  return false;
}

bool announce_stream(PyObject* array, const void* stream, Kept& kept) {
  const auto number = reinterpret_cast<std::intptr_t>(stream);
  const Ref capsule = exported(array, true, number == 0 ? 1 : number);
  return capsule && kept.add(capsule.get());
}

std::string place_name(dlpack::Device device) {
  if (device.type == dlpack::kCpu) return "the CPU";
  return "the DLPack device " + std::to_string(device.type);
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
