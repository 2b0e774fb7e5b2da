#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <string>

#include "python/extension/arrays/dlpack.h"
#include "python/extension/python.h"

namespace kernwright::python {

inline constexpr int kMostDims = 8;

/// What is known of a caller's array: where it lies, and how. The memory belongs to the array.
struct ArrayView {
  void* data = nullptr;
  dlpack::DataType dtype{};  ///< all zero where kernwright has no name for it
  dlpack::Device device{};   ///< its id is -1 where nobody knows the GPU of an address
  int ndim = 0;
  bool is_tensor = false;                    ///< of PyTorch
  bool asks_torch = false;                   ///< a tensor of a torch without the exchange API
  bool asks_stream = false;                  ///< read by `__dlpack__`, which is told who reads
  bool read_only = false;                    ///< its framework says that nothing may write it
  const dlpack::ExchangeApi* api = nullptr;  ///< of its framework; null where that has none
  std::intptr_t stream = 0;  ///< of `__cuda_array_interface__`; 0 where none was given
  std::int64_t shape[kMostDims];
  std::int64_t strides[kMostDims];  ///< elements

  bool on_gpu() const {
    return device.type == dlpack::kCuda || device.type == dlpack::kCudaManaged;
  }
};

/// Room for views. Those that nobody asks for are not cleared, which would cost a call more than
/// reading its arrays.
template <std::size_t Most>
class ViewRoom {
 public:
  ArrayView& make(std::size_t i) { return *new (place(i)) ArrayView; }
  const ArrayView& operator[](std::size_t i) const {
    return *std::launder(reinterpret_cast<const ArrayView*>(place(i)));
  }

 private:
  const std::byte* place(std::size_t i) const { return bytes_ + i * sizeof(ArrayView); }
  std::byte* place(std::size_t i) { return bytes_ + i * sizeof(ArrayView); }

  alignas(ArrayView) std::byte bytes_[Most * sizeof(ArrayView)];
};

/// Reads an array of any framework into a new view. The ways are tried in this order: DLPack's
/// exchange API of its type (torch since 2.10), the attributes of a torch tensor,
/// `__cuda_array_interface__` (CuPy, Numba), `__dlpack__` (JAX). None of them waits for the GPU.
/// What the array was exported as is added to `kept`, as the memory may live by that alone. Returns
/// false with a Python error set: TypeError where it is no array, ValueError where it has more than
/// `kMostDims` dimensions, or is what no array is.
bool read_array(PyObject* array, ArrayView& view, Kept& kept);

/// Tells the framework of an array that was read by `__dlpack__` that `stream` is about to use it,
/// so that its own work on the array comes first. Returns false with a Python error set.
bool announce_stream(PyObject* array, const void* stream, Kept& kept);

/// The name kernwright gives the dtype ("bf16"), or null where it has none.
const char* dtype_name(dlpack::DataType dtype);

/// Where an array lies that is on no GPU: "the CPU".
std::string place_name(dlpack::Device device);

/// The dtype of that name. Returns false, without a Python error, where there is none.
bool find_dtype(const char* name, dlpack::DataType& dtype);

/// The attribute of the module torch that names the dtype ("bfloat16"), or null.
const char* torch_dtype_name(dlpack::DataType dtype);

}  // namespace kernwright::python
