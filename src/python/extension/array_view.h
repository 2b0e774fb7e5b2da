#pragma once

#include <cstdint>

#include "python/extension/dlpack.h"
#include "python/extension/python.h"

namespace kernwright::python {

inline constexpr int kMostDims = 8;

/// What is known of a caller's array: where it lies, and how. It borrows: it holds while the array
/// lives and is not resized. Nothing is set before `read_array` has succeeded: clearing what a call
/// has room for would cost more than reading its arrays.
struct ArrayView {
  void* data;
  dlpack::DataType dtype;  ///< all zero where kernwright has no name for it
  dlpack::Device device;   ///< its id is -1 where nobody knows the GPU of an address
  int ndim;
  const std::int64_t* shape;
  const std::int64_t* strides;      ///< elements
  const dlpack::ExchangeApi* api;   ///< of the array's framework; null where it has none
  bool torch;                       ///< a tensor of a torch without the exchange API
  bool asks_stream;                 ///< read by `__dlpack__`, which is told who reads
  bool read_only;                   ///< its framework says that nothing may write it
  std::intptr_t stream;             ///< of `__cuda_array_interface__`; 0 where none was given
  std::int64_t held[2][kMostDims];  ///< shape and strides that nobody else keeps

  ArrayView() {}  // NOLINT(modernize-use-equals-default): leaves the members alone
  ArrayView(const ArrayView&) = delete;
  ArrayView& operator=(const ArrayView&) = delete;

  bool on_gpu() const {
    return device.type == dlpack::kCuda || device.type == dlpack::kCudaManaged;
  }
};

/// Reads an array of any framework. The ways are tried in this order: DLPack's exchange API of its
/// type (torch since 2.10), the attributes of a torch tensor, `__cuda_array_interface__` (CuPy,
/// Numba), `__dlpack__` (JAX). None of them waits for the GPU. Returns false with a Python error
/// set: TypeError where it is no array, ValueError where it has more than `kMostDims` dimensions.
bool read_array(PyObject* array, ArrayView& view);

/// Tells the framework of an array that was read by `__dlpack__` that `stream` is about to use it,
/// so that its own work on the array comes first. Returns false with a Python error set.
bool announce_stream(PyObject* array, const void* stream);

/// The name kernwright gives the dtype ("bf16"), or null where it has none.
const char* dtype_name(dlpack::DataType dtype);

/// The dtype of that name. Returns false, without a Python error, where there is none.
bool find_dtype(const char* name, dlpack::DataType& dtype);

/// The attribute of the module torch that names the dtype ("bfloat16"), or null.
const char* torch_dtype_name(dlpack::DataType dtype);

}  // namespace kernwright::python
