#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <string>

#include "python/extension/arrays/dlpack.h"
#include "python/extension/python.h"

namespace kernwright::python {

inline constexpr int kMostDims = 8;

/// A caller's array: its memory and its layout. The memory belongs to the array.
struct ArrayView {
  void* data = nullptr;
  dlpack::DataType dtype{};  ///< all zero if kernwright has no name for it
  dlpack::Device device{};   ///< its id is -1 if nobody knows the GPU of an address
  int ndim = 0;
  bool is_tensor = false;                    ///< of PyTorch
  bool asks_torch = false;                   ///< a tensor of a torch without the exchange API
  bool asks_stream = false;                  ///< read by `__dlpack__`, told the stream
  bool read_only = false;                    ///< its framework says that it must not be written
  const dlpack::ExchangeApi* api = nullptr;  ///< its framework's; null if that has none
  std::intptr_t stream = 0;  ///< from `__cuda_array_interface__`; 0 if it named none
  std::int64_t shape[kMostDims];
  std::int64_t strides[kMostDims];  ///< elements

  bool on_gpu() const {
    return device.type == dlpack::kCuda || device.type == dlpack::kCudaManaged;
  }
};

/// Room for views. Views that nobody asks for are not cleared, since clearing would cost a call
/// more than reading its arrays.
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
/// The object that the array was exported as is added to `kept`, since it alone may keep the memory
/// alive. Returns false with a Python error set: TypeError if it is not an array, ValueError if it
/// has more than `kMostDims` dimensions, or values that no array has.
bool read_array(PyObject* array, ArrayView& view, Kept& kept);

/// Tells the framework of an array that was read by `__dlpack__` that `stream` is about to use it,
/// so that its own work on the array comes first. Returns false with a Python error set.
bool announce_stream(PyObject* array, const void* stream, Kept& kept);

/// Returns kernwright's name for the dtype ("bf16"), or null if it has none.
const char* dtype_name(dlpack::DataType dtype);

/// Returns the name of the place of an array that is not on a GPU: "the CPU".
std::string place_name(dlpack::Device device);

/// Finds the dtype of that name. Returns false, without a Python error, if there is none.
bool find_dtype(const char* name, dlpack::DataType& dtype);

/// Returns the attribute of the module torch that names the dtype ("bfloat16"), or null.
const char* torch_dtype_name(dlpack::DataType dtype);

}  // namespace kernwright::python
