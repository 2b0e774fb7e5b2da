#pragma once

#include <cstdint>

#include "python/extension/arrays/array_view.h"
#include "python/extension/python.h"

namespace kernwright::python {

/// The framework on whose current stream an array's work goes.
struct Framework {
  const dlpack::ExchangeApi* api = nullptr;  ///< null if it has none
  bool torch = false;                        ///< a torch without the exchange API
  std::intptr_t stream = 0;                  ///< named by `__cuda_array_interface__`

  Framework() = default;
  explicit Framework(const ArrayView& view)
      : api(view.api), torch(view.asks_torch), stream(view.stream) {}

  /// Returns true if it says what its current stream is.
  bool says() const {
    return (api != nullptr && api->current_stream != nullptr) || torch || stream != 0;
  }
};

/// Finds the stream that a caller passed. If `given` is null or None, it is the current one of the
/// framework, or the default stream if the framework does not say. A caller passes a number, or a
/// stream of a framework: an object with `__cuda_stream__`, `cuda_stream` (torch) or `ptr` (CuPy).
/// Returns false with a Python error set.
bool find_stream(PyObject* given, const Framework& framework, int device, void*& stream);

/// Finds the one argument `stream` of a call, by its name or alone, null if it was left out.
/// Returns false with a Python error set.
bool only_stream(const char* what, PyObject* const* given, Py_ssize_t count, PyObject* names,
                 PyObject*& stream);

}  // namespace kernwright::python
