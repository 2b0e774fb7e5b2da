#include "python/extension/launch.h"

#include <algorithm>
#include <numeric>

#include "python/extension/arrays/driver_context.h"
#include "python/extension/arrays/stream.h"
#include "python/extension/arrays/torch_tensor.h"
#include "python/extension/errors.h"

namespace kernwright::python {
namespace {

std::string text_of(const std::int64_t* values, int count) {
  std::string text = "[";
  for (int i = 0; i < count; ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(values[i]);
  }
  return text + "]";
}

/// Returns true if `view` has the dimensions of `expected`. Neighbours that can be merged count as
/// one dimension, and dimensions of size 1 as none: a tensor [batch, tokens, k] is the rows of a
/// product, whatever batch is.
bool lies_as(const ArrayView& view, const Expected& expected) {
  int next = view.ndim - 1;
  for (int i = expected.ndim - 1; i >= 0; --i) {
    std::int64_t covered = 1;
    std::int64_t stride = expected.strides[i];
    while (next >= 0 && (covered < expected.extent[i] || view.shape[next] == 1)) {
      const std::int64_t size = view.shape[next];
      if (size != 1) {
        if (size <= 0 || view.strides[next] != stride) return false;
        if (covered > expected.extent[i] / size) return false;
        stride *= size;
        covered *= size;
      }
      --next;
    }
    if (covered != expected.extent[i]) return false;
  }
  return next < 0;
}

/// Does the same for dimensions that are equal one by one, which they mostly are.
bool lies_exactly_as(const ArrayView& view, const Expected& expected) {
  if (view.ndim != expected.ndim) return false;
  for (int i = 0; i < expected.ndim; ++i) {
    if (view.shape[i] != expected.extent[i] || view.strides[i] != expected.strides[i]) return false;
  }
  return true;
}

bool on_gpu_of(const KernelState& kernel, const ArrayView& view) {
  return view.on_gpu() &&
         (view.device.id == kernel.device || view.device.id < 0 || kernel.device < 0);
}

/// Raises the first fact that does not fit. Always returns false.
bool refuse(const KernelState& kernel, const Expected& expected, const ArrayView& view) {
  const char* problem = kernel.problem.c_str();
  const char* name = expected.name.c_str();
  if (!view.on_gpu()) {
    raise(problem, "%s lies on %s, and a GPU (CUDA) expected", name,
          place_name(view.device).c_str());
  } else if (!on_gpu_of(kernel, view)) {
    raise(problem, "%s lies on GPU %d, and the kernel was made for GPU %d", name, view.device.id,
          kernel.device);
  } else if (expected.output && view.read_only) {
    raise(problem, "%s is read-only, and an output is written", name);
  } else if (view.dtype != expected.dtype) {
    const char* given = dtype_name(view.dtype);
    raise(problem, "%s is %s, and %s expected", name,
          given != nullptr ? given : "of a dtype that kernwright does not know",
          expected.dtype_text.c_str());
  } else {
    raise(problem, "%s has the shape %s and the strides %s, and %s with the strides %s expected",
          name, text_of(view.shape, view.ndim).c_str(), text_of(view.strides, view.ndim).c_str(),
          text_of(expected.extent, expected.ndim).c_str(),
          text_of(expected.strides, expected.ndim).c_str());
  }
  return false;
}

void remember_error(void* context, const char*, const char* message) {
  *static_cast<std::string*>(context) = message;
}

/// The workspace of one launch. It is returned to the framework's pool, which hands it out again in
/// the order of the framework's current stream.
class Workspace {
 public:
  Workspace() = default;
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace() {
    if (tensor_ != nullptr && tensor_->deleter != nullptr) tensor_->deleter(tensor_);
  }

  /// Returns false with a Python error set.
  bool take(std::size_t size, const dlpack::ExchangeApi& api, dlpack::Device device) {
    auto bytes = static_cast<std::int64_t>(size);
    std::int64_t stride = 1;
    dlpack::DataType byte{};
    find_dtype("uint8", byte);
    tensor_ = allocate(api, {nullptr, device, 1, byte, &bytes, &stride, 0});
    return tensor_ != nullptr;
  }
  /// Null: the launch takes its workspace from a pool of the driver's.
  void* address() const {
    if (tensor_ == nullptr) return nullptr;
    return static_cast<char*>(tensor_->tensor.data) + tensor_->tensor.byte_offset;
  }

 private:
  dlpack::VersionedTensor* tensor_ = nullptr;
};

/// Far above every size and distance in a tensor, and sums of products of two do not overflow.
constexpr std::int64_t kMostElements = std::int64_t{1} << 52;

}  // namespace

dlpack::VersionedTensor* allocate(const dlpack::ExchangeApi& api, dlpack::Tensor prototype) {
  std::string reason = "the framework gave no memory";
  dlpack::VersionedTensor* made = nullptr;
  if (api.allocate(&prototype, &made, &reason, remember_error) == 0 && made != nullptr) return made;
  if (PyErr_Occurred() == nullptr) PyErr_SetString(PyExc_MemoryError, reason.c_str());
  return nullptr;
}

bool may_use(const KernelState& kernel, const Expected& expected, const ArrayView& view) {
  if (on_gpu_of(kernel, view) && !(view.read_only && expected.output)) return true;
  return refuse(kernel, expected, view);
}

bool fits(const KernelState& kernel, const Expected& expected, const ArrayView& view) {
  const bool right = on_gpu_of(kernel, view) && !(view.read_only && expected.output) &&
                     view.dtype == expected.dtype &&
                     (lies_exactly_as(view, expected) || lies_as(view, expected));
  return right || refuse(kernel, expected, view);
}

bool apart(const KernelState& kernel, const void* const* addresses) {
  const auto at = [addresses](std::size_t i) {
    return reinterpret_cast<std::uintptr_t>(addresses[i]);
  };
  for (std::size_t out = 0; out < kernel.tensors; ++out) {
    const Expected& written = kernel.arguments[out];
    if (!written.output || addresses[out] == nullptr) continue;
    for (std::size_t other = 0; other < kernel.tensors; ++other) {
      if (other == out || addresses[other] == nullptr) continue;
      const Expected& beside = kernel.arguments[other];
      if (addresses[out] == addresses[other] && written.in_place == beside.name) continue;
      if (!may_overlap(at(out), written.footprint, at(other), beside.footprint)) continue;
      raise(kernel.problem.c_str(), "%s overlaps %s in memory, and an output has to lie apart",
            written.name.c_str(), beside.name.c_str());
      return false;
    }
  }
  return true;
}

bool can_launch(const KernelState& kernel) {
  if (kernel.device >= 0) return true;
  const Failure failure{"the service has no GPU (sku=...), so the kernel cannot be launched",
                        false};
  failure.raise(kernel.problem.c_str());
  return false;
}

bool find_footprint(Expected& expected) {
  const auto bytes = [&expected](std::int64_t elements) {
    return static_cast<std::uint64_t>(elements) * expected.dtype.bits / 8;
  };
  std::int64_t last = 0;
  std::int64_t run = 1;
  std::int64_t pitch = 0;
  // From the densest dimension on; transposed matrices have that first.
  std::vector<std::size_t> order(static_cast<std::size_t>(expected.ndim));
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&expected](std::size_t i, std::size_t j) {
    return expected.strides[i] < expected.strides[j];
  });
  for (const std::size_t dim : order) {
    const std::int64_t extent = expected.extent[dim];
    const std::int64_t stride = expected.strides[dim];
    std::int64_t reach = 0;
    if (extent < 0 || stride < 0 || __builtin_mul_overflow(extent, stride, &reach) ||
        reach > kMostElements) {
      return false;
    }
    if (extent == 0) {
      expected.footprint = {};
      return true;
    }
    last += reach - stride;
    if (extent == 1) continue;
    if (pitch == 0 && stride == run) {
      run *= extent;
    } else {
      pitch = std::gcd(pitch, stride);
    }
  }
  expected.footprint = {bytes(last + 1), bytes(run), bytes(pitch)};
  return true;
}

bool count_fits(const KernelState& kernel, std::size_t count) {
  if (count >= kernel.tensors && count <= kernel.arguments.size() && kernel.tensors > 0) {
    return true;
  }
  raise(kernel.problem.c_str(), "%zu arguments, and %zu tensors and up to %zu scalars expected",
        count, kernel.tensors, kernel.arguments.size() - kernel.tensors);
  return false;
}

bool check_tensors(const KernelState& kernel, const Tensor* tensors, const void** addresses) {
  for (std::size_t i = 0; i < kernel.tensors; ++i) {
    if (!fits(kernel, kernel.arguments[i], *tensors[i].view)) return false;
    addresses[i] = tensors[i].view->data;
  }
  return apart(kernel, addresses) && can_launch(kernel);
}

Framework framework_of(const KernelState& kernel, const Tensor* tensors) {
  for (std::size_t i = 0; i < kernel.tensors; ++i) {
    const Framework framework(*tensors[i].view);
    if (framework.says()) return framework;
  }
  return {};
}

bool announce(const KernelState& kernel, const Tensor* tensors, const void* stream, Kept& kept) {
  for (std::size_t i = 0; i < kernel.tensors; ++i) {
    if (!tensors[i].view->asks_stream || announce_stream(tensors[i].array, stream, kept)) continue;
    raise_current(kernel.problem.c_str(), kernel.arguments[i].name.c_str());
    return false;
  }
  return true;
}

Ref written_tensors(const KernelState& kernel, const Tensor* tensors) {
  PyObject* found[kMostArguments];
  Py_ssize_t count = 0;
  for (std::size_t i = 0; i < kernel.tensors; ++i) {
    const Tensor& tensor = tensors[i];
    if (!kernel.arguments[i].output || tensor.is_new || !tensor.view->is_tensor) continue;
    found[count++] = tensor.array;
  }
  Ref written(count > 0 ? PyTuple_New(count) : nullptr);
  for (Py_ssize_t i = 0; written && i < count; ++i) {
    PyTuple_SetItem(written.get(), i, Ref::to(found[i]).release());
  }
  return written;
}

bool launch(const KernelState& kernel, const Tensor* tensors, const double* scalars,
            std::size_t scalar_count, PyObject* given_stream, Kept& kept) {
  const char* problem = kernel.problem.c_str();
  const void* addresses[kMostArguments];
  if (!check_tensors(kernel, tensors, addresses)) return false;
  void* stream = nullptr;
  if (!find_stream(given_stream, framework_of(kernel, tensors), kernel.device, stream)) {
    raise_current(problem, "stream");
    return false;
  }
  Workspace workspace;
  if (kernel.workspace_bytes > 0 && (given_stream == nullptr || given_stream == Py_None)) {
    // The pool hands it out again in the order of the current stream, and of no other.
    const ArrayView& first = *tensors[0].view;
    if (first.api != nullptr && first.api->allocate != nullptr &&
        !workspace.take(kernel.workspace_bytes, *first.api, first.device)) {
      return false;
    }
  }
  if (!announce(kernel, tensors, stream, kept)) return false;
  const ContextScope context(kernel.device);
  if (context.failure() != nullptr) {
    raise(problem, "%s", context.failure());
    return false;
  }
  int status = 0;
  {
    const WithoutGil released;  // a launch waits if the queue of its stream is full
    status = kw_launch(kernel.handle, stream, addresses, kernel.tensors, scalars, scalar_count,
                       workspace.address());
  }
  if (status != 0) {
    Failure::last().raise(problem);
    return false;
  }
  const Ref written = written_tensors(kernel, tensors);
  return written ? mark_written(written.get()) : PyErr_Occurred() == nullptr;
}

}  // namespace kernwright::python
