#include "python/extension/arrays/stream.h"

namespace kernwright::python {
namespace {

/// Returns true if a stream may have this number: it is an address, or a number that has a meaning
/// for the driver. The driver would follow any other number blindly.
bool is_stream(const void* stream) {
  const auto number = reinterpret_cast<std::uintptr_t>(stream);
  if (number <= 2 || number >= 4096) return true;
  PyErr_Format(PyExc_ValueError, "%zu is no stream", static_cast<std::size_t>(number));
  return false;
}

bool read_number(PyObject* number, void*& stream) {
  stream = PyLong_AsVoidPtr(number);
  return (stream != nullptr || PyErr_Occurred() == nullptr) && is_stream(stream);
}

/// Reads the number of a framework's stream. Returns false with a Python error set. The attribute
/// of torch's streams is tried first: they have `__cuda_stream__` too, which costs more.
bool read_stream(PyObject* given, void*& stream) {
  if (PyLong_Check(given) != 0) return read_number(given, stream);
  if (const Ref number = attribute_if_there(given, "cuda_stream")) {
    return read_number(number.get(), stream);
  }
  if (PyErr_Occurred() != nullptr) return false;
  if (const Ref method = attribute_if_there(given, "__cuda_stream__")) {
    const Ref pair(PyObject_CallObject(method.get(), nullptr));
    const Ref number(pair ? PySequence_GetItem(pair.get(), 1) : nullptr);
    return number && read_number(number.get(), stream);
  }
  if (PyErr_Occurred() != nullptr) return false;
  if (const Ref number = attribute_if_there(given, "ptr")) {
    return read_number(number.get(), stream);
  }
  if (PyErr_Occurred() == nullptr) {
    PyErr_Format(PyExc_TypeError, "%R is no stream", Py_TYPE(given));
  }
  return false;
}

/// Finds the current stream of a torch that has no exchange API.
bool find_torch_stream(int device, void*& stream) {
  const Ref torch(PyImport_ImportModule("torch.cuda"));
  const Ref current(torch ? PyObject_CallMethod(torch.get(), "current_stream", "i", device)
                          : nullptr);
  return current && read_stream(current.get(), stream);
}

}  // namespace

bool find_stream(PyObject* given, const Framework& framework, int device, void*& stream) {
  if (given != nullptr && given != Py_None) return read_stream(given, stream);
  const dlpack::ExchangeApi* api = framework.api;
  if (api != nullptr && api->current_stream != nullptr) [[likely]] {
    return api->current_stream(dlpack::kCuda, device, &stream) == 0;
  }
  if (framework.torch) return find_torch_stream(device, stream);
  // 1 and 2 have the same meaning for the driver as there.
  stream = reinterpret_cast<void*>(framework.stream);
  return is_stream(stream);
}

bool only_stream(const char* what, PyObject* const* given, Py_ssize_t count, PyObject* names,
                 PyObject*& stream) {
  const Py_ssize_t named = names == nullptr ? 0 : PyTuple_Size(names);
  const bool is_stream =
      named == 0 || PyUnicode_CompareWithASCIIString(PyTuple_GetItem(names, 0), "stream") == 0;
  if (count + named > 1 || !is_stream) {
    PyErr_Format(PyExc_TypeError, "%s takes no argument but stream", what);
    return false;
  }
  stream = count + named == 1 ? given[0] : nullptr;
  return true;
}

}  // namespace kernwright::python
