/* A loop of bare launches, for python_call.py. */
#include <stddef.h>

typedef int (*launch_function)(const void* kernel, void* stream, const void* const* tensors,
                               size_t tensor_count, const double* scalars, size_t scalar_count,
                               void* workspace);

int launch_often(launch_function launch, const void* kernel, void* stream,
                 const void* const* tensors, size_t tensor_count, size_t times) {
  int status = 0;
  for (size_t i = 0; i < times; ++i) {
    status |= launch(kernel, stream, tensors, tensor_count, NULL, 0, NULL);
  }
  return status;
}
