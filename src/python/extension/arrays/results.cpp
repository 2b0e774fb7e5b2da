#include "python/extension/arrays/results.h"

#include "python/extension/launch.h"

namespace kernwright::python {
namespace {

/// Makes a new tensor by torch's own `new_empty`, for a torch without the exchange API.
Ref make_torch_tensor(PyObject* like, PyObject* shape, dlpack::DataType dtype) {
  const Ref torch(PyImport_ImportModule("torch"));
  const Ref torch_dtype(torch ? PyObject_GetAttrString(torch.get(), torch_dtype_name(dtype))
                              : nullptr);
  const Ref method(PyObject_GetAttrString(like, "new_empty"));
  const Ref positional(PyTuple_Pack(1, shape));
  const Ref names(PyDict_New());
  if (!torch_dtype || !method || !positional || !names ||
      PyDict_SetItemString(names.get(), "dtype", torch_dtype.get()) != 0) {
    return Ref();
  }
  return Ref(PyObject_Call(method.get(), positional.get(), names.get()));
}

/// Reads the sizes of `shape`, with the strides of a contiguous array. Returns the number of
/// dimensions, or -1 with a Python error set.
int read_shape(PyObject* shape, std::int64_t (&extent)[kMostDims],
               std::int64_t (&strides)[kMostDims]) {
  const Py_ssize_t ndim = PyTuple_Size(shape);
  if (ndim < 0) return -1;
  if (ndim > kMostDims) {
    PyErr_Format(PyExc_ValueError, "%zd dimensions, and at most %d expected", ndim, kMostDims);
    return -1;
  }
  std::int64_t stride = 1;
  for (Py_ssize_t i = ndim - 1; i >= 0; --i) {
    extent[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
    if (PyErr_Occurred() != nullptr) return -1;
    strides[i] = stride;
    if (extent[i] < 0 || __builtin_mul_overflow(stride, extent[i] == 0 ? 1 : extent[i], &stride)) {
      PyErr_Format(PyExc_ValueError, "no array has the shape %R", shape);
      return -1;
    }
  }
  return static_cast<int>(ndim);
}

}  // namespace

Ref make_result(PyObject* like, const ArrayView& like_view, PyObject* shape, const char* dtype,
                ArrayView& view, Kept& kept) {
  dlpack::Tensor prototype{};
  if (!find_dtype(dtype, prototype.dtype)) {
    PyErr_Format(PyExc_ValueError, "kernwright has no dtype %s", dtype);
    return Ref();
  }
  if (like_view.asks_torch) {
    Ref made = make_torch_tensor(like, shape, prototype.dtype);
    return made && read_array(made.get(), view, kept) ? std::move(made) : Ref();
  }
  const dlpack::ExchangeApi* api = like_view.api;
  if (api == nullptr || api->allocate == nullptr || api->import_managed == nullptr) {
    PyErr_Format(PyExc_TypeError, "arrays of %R cannot be made here: give out=", Py_TYPE(like));
    return Ref();
  }
  std::int64_t extent[kMostDims];
  std::int64_t strides[kMostDims];
  prototype.ndim = read_shape(shape, extent, strides);
  if (prototype.ndim < 0) return Ref();
  prototype.device = like_view.device;
  prototype.shape = extent;
  prototype.strides = strides;
  dlpack::VersionedTensor* made = allocate(*api, prototype);
  void* object = nullptr;
  if (made == nullptr || api->import_managed(made, &object) != 0) return Ref();
  Ref array(static_cast<PyObject*>(object));
  return read_array(array.get(), view, kept) ? std::move(array) : Ref();
}

}  // namespace kernwright::python
