#pragma once

#include <cstdint>

#include "python/extension/arrays/array_view.h"
#include "python/extension/python.h"

namespace kernwright::python {

/// The framework on whose current stream an array's work goes.
struct Framework {
  const dlpack::ExchangeApi* api = nullptr;  ///< null where it has none
  bool torch = false;                        ///< a torch without the exchange API
  std::intptr_t stream = 0;                  ///< what `__cuda_array_interface__` named

  Framework() = default;
  explicit Framework(const ArrayView& view)
      : api(view.api), torch(view.asks_torch), stream(view.stream) {}

  /// Whether it says what its current stream is.
  bool says() const {
    return (api != nullptr && api->current_stream != nullptr) || torch || stream != 0;
  }
};

/// The stream that a caller gave, or where `given` is null or None the current one of the
/// framework, the default stream where it does not say. A caller gives a number, or a stream of a
/// framework: an object with `__cuda_stream__`, `cuda_stream` (torch) or `ptr` (CuPy). Returns
/// false with a Python error set.
bool find_stream(PyObject* given, const Framework& framework, int device, void*& stream);

/// The one argument `stream` of a call, by its name or alone, null where it was left out. Returns
/// false with a Python error set.
bool only_stream(const char* what, PyObject* const* given, Py_ssize_t count, PyObject* names,
                 PyObject*& stream);

}  // namespace kernwright::python
