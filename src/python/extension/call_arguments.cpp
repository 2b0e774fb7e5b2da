#include "python/extension/call_arguments.h"

#include "python/extension/errors.h"

namespace kernwright::python {

bool CallArguments::read(const KernelState& kernel, PyObject* const* given, std::size_t count) {
  if (!count_fits(kernel, count)) return false;
  const char* problem = kernel.problem.c_str();
  for (std::size_t i = 0; i < kernel.tensors; ++i) {
    ArrayView& view = views_.make(i);
    tensors[i] = {given[i], &view, false};
    if (read_array(given[i], view, kept)) continue;
    raise_current(problem, kernel.arguments[i].name.c_str());
    return false;
  }
  scalar_count = count - kernel.tensors;
  for (std::size_t i = 0; i < scalar_count; ++i) {
    scalars[i] = PyFloat_AsDouble(given[kernel.tensors + i]);
    if (scalars[i] != -1 || PyErr_Occurred() == nullptr) continue;
    raise_current(problem, kernel.arguments[kernel.tensors + i].name.c_str());
    return false;
  }
  return true;
}

}  // namespace kernwright::python
