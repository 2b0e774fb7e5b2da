#pragma once

#include <cstdint>

#include "python/extension/dlpack.h"
#include "python/extension/python.h"

namespace kernwright::python {

inline constexpr int kMostDims = 8;

/// What is known of a caller's array: where it lies, and how. It borrows: it holds while the array
/// lives and is not resized.
struct ArrayView {
  void* data = nullptr;
  dlpack::DataType dtype{};
  dlpack::Device device{};
  int ndim = 0;
  std::int64_t shape[kMostDims] = {};
  std::int64_t strides[kMostDims] = {};      ///< elements
  const dlpack::ExchangeApi* api = nullptr;  ///< of the array's framework, if it has one

  bool on_gpu() const {
    return device.type == dlpack::kCuda || device.type == dlpack::kCudaManaged;
  }
};

/// Reads an array of any framework. The ways are tried in this order: DLPack's exchange API of its
/// type (torch since 2.10), the attributes of a torch tensor, `__cuda_array_interface__` (CuPy,
/// Numba), `__dlpack__` (JAX). None of them waits for the GPU. Returns false with a Python error
/// set: TypeError where it is no array, ValueError where it has more than `kMostDims` dimensions.
bool read_array(PyObject* array, ArrayView& view);

/// The name kernwright gives the dtype ("bf16"), or null where it has none.
const char* dtype_name(dlpack::DataType dtype);

/// The dtype of that name. Returns false, without a Python error, where there is none.
bool find_dtype(const char* name, dlpack::DataType& dtype);

/// The bytes between the first and past the last element.
struct ByteRange {
  std::uintptr_t begin = 0, end = 0;
  bool overlaps(const ByteRange& other) const { return begin < other.end && other.begin < end; }
};
ByteRange bytes_of(const ArrayView& view);

}  // namespace kernwright::python
