#include "python/extension/launch.h"

#include "python/extension/driver_context.h"
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

/// Whether the dimensions of `view` are those of `expected`, where neighbours that lie as one
/// dimension count as one and dimensions of size 1 as none: a tensor [batch, tokens, k] is the rows
/// of a product, whatever batch is.
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

/// The same where the dimensions are equal one by one, which they mostly are.
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

/// Raises what does not fit. Always returns false.
bool refuse(const KernelState& kernel, const Expected& expected, const ArrayView& view) {
  const char* problem = kernel.problem.c_str();
  const char* name = expected.name.c_str();
  if (!view.on_gpu()) {
    raise(problem, "%s lies on no GPU: its DLPack device type is %d, and %d expected", name,
          view.device.type, dlpack::kCuda);
  } else if (!on_gpu_of(kernel, view)) {
    raise(problem, "%s lies on GPU %d, and the kernel was made for GPU %d", name, view.device.id,
          kernel.device);
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

bool fits(const KernelState& kernel, const Expected& expected, const ArrayView& view) {
  const bool right = on_gpu_of(kernel, view) && view.dtype == expected.dtype &&
                     (lies_exactly_as(view, expected) || lies_as(view, expected));
  return right || refuse(kernel, expected, view);
}

/// No output may lie where another tensor of the launch lies: kernels read and write in any order.
bool apart(const KernelState& kernel, const Tensor* tensors) {
  const auto at = [tensors](std::size_t i) {
    return reinterpret_cast<std::uintptr_t>(tensors[i].view->data);
  };
  for (std::size_t out = 0; out < kernel.tensors; ++out) {
    const Expected& written = kernel.arguments[out];
    if (!written.output) continue;
    for (std::size_t other = 0; other < kernel.tensors; ++other) {
      if (other == out) continue;
      const Expected& beside = kernel.arguments[other];
      if (!may_overlap(at(out), written.footprint, at(other), beside.footprint)) continue;
      raise(kernel.problem.c_str(), "%s overlaps %s in memory, and an output has to lie apart",
            written.name.c_str(), beside.name.c_str());
      return false;
    }
  }
  return true;
}

void remember_error(void* context, const char*, const char* message) {
  *static_cast<std::string*>(context) = message;
}

/// The workspace of one launch. It goes back to the framework's pool, which hands it out again in
/// the order of the framework's current stream.
class Workspace {
 public:
  Workspace() = default;
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace() {
    if (tensor_ != nullptr && tensor_->deleter != nullptr) tensor_->deleter(tensor_);
  }

  /// False with a Python error set.
  bool take(std::size_t size, const dlpack::ExchangeApi& api, dlpack::Device device) {
    auto bytes = static_cast<std::int64_t>(size);
    std::int64_t stride = 1;
    dlpack::DataType byte{};
    find_dtype("uint8", byte);
    tensor_ = allocate(api, {nullptr, device, 1, byte, &bytes, &stride, 0});
    return tensor_ != nullptr;
  }
  /// Null: the launch takes what it needs from a pool of the driver's.
  void* address() const {
    if (tensor_ == nullptr) return nullptr;
    return static_cast<char*>(tensor_->tensor.data) + tensor_->tensor.byte_offset;
  }

 private:
  dlpack::VersionedTensor* tensor_ = nullptr;
};

/// A number, or a stream of a framework: an object with `__cuda_stream__`, `cuda_stream` (torch) or
/// `ptr` (CuPy). False with a Python error set.
bool read_stream(PyObject* given, void*& stream) {
  Ref number;
  if (PyLong_Check(given) != 0) {
    number = Ref(PyNumber_Index(given));
  } else if (const Ref method = attribute_if_there(given, "__cuda_stream__")) {
    const Ref pair(PyObject_CallObject(method.get(), nullptr));
    if (pair) number = Ref(PySequence_GetItem(pair.get(), 1));
  } else {
    for (const char* name : {"cuda_stream", "ptr"}) {
      if (!number && PyErr_Occurred() == nullptr) number = attribute_if_there(given, name);
    }
    if (!number && PyErr_Occurred() == nullptr) {
      PyErr_Format(PyExc_TypeError, "%R is no stream", Py_TYPE(given));
    }
  }
  if (!number) return false;
  stream = PyLong_AsVoidPtr(number.get());
  return stream != nullptr || PyErr_Occurred() == nullptr;
}

/// The current stream of a torch that has no exchange API.
bool find_torch_stream(int device, void*& stream) {
  const Ref torch(PyImport_ImportModule("torch.cuda"));
  const Ref current(torch ? PyObject_CallMethod(torch.get(), "current_stream", "i", device)
                          : nullptr);
  return current && read_stream(current.get(), stream);
}

/// The current stream of the framework that the arrays belong to; the default stream where none of
/// them says. False with a Python error set.
bool find_stream(const Tensor* tensors, std::size_t count, int device, void*& stream) {
  for (std::size_t i = 0; i < count; ++i) {
    const ArrayView& view = *tensors[i].view;
    if (view.api != nullptr && view.api->current_stream != nullptr) {
      return view.api->current_stream(dlpack::kCuda, device, &stream) == 0;
    }
    if (view.torch) return find_torch_stream(device, stream);
    if (view.stream == 0) continue;
    stream =
        reinterpret_cast<void*>(view.stream);  // 1 and 2 mean to the driver what they mean here
    return true;
  }
  return true;
}

}  // namespace

dlpack::VersionedTensor* allocate(const dlpack::ExchangeApi& api, dlpack::Tensor prototype) {
  std::string reason = "the framework gave no memory";
  dlpack::VersionedTensor* made = nullptr;
  if (api.allocate(&prototype, &made, &reason, remember_error) == 0 && made != nullptr) return made;
  if (PyErr_Occurred() == nullptr) PyErr_SetString(PyExc_MemoryError, reason.c_str());
  return nullptr;
}

bool count_fits(const KernelState& kernel, std::size_t count) {
  if (count >= kernel.tensors && count <= kernel.arguments.size() && kernel.tensors > 0) {
    return true;
  }
  raise(kernel.problem.c_str(), "%zu arguments, and %zu tensors and up to %zu scalars expected",
        count, kernel.tensors, kernel.arguments.size() - kernel.tensors);
  return false;
}

bool launch(const KernelState& kernel, const Tensor* tensors, const double* scalars,
            std::size_t scalar_count, PyObject* given_stream) {
  const char* problem = kernel.problem.c_str();
  const auto name = [&kernel](std::size_t i) { return kernel.arguments[i].name.c_str(); };
  const void* addresses[kMostArguments];
  for (std::size_t i = 0; i < kernel.tensors; ++i) {
    if (!fits(kernel, kernel.arguments[i], *tensors[i].view)) return false;
    addresses[i] = tensors[i].view->data;
  }
  if (!apart(kernel, tensors)) return false;
  if (kernel.device < 0) {
    raise(problem, "the service has no GPU (sku=...), so the kernel cannot be launched");
    return false;
  }

  void* stream = nullptr;
  Workspace workspace;
  const ArrayView& first = *tensors[0].view;
  if (given_stream != nullptr && given_stream != Py_None) {
    if (!read_stream(given_stream, stream)) {
      raise_current(problem, "stream");
      return false;
    }
  } else {
    if (!find_stream(tensors, kernel.tensors, kernel.device, stream)) return false;
    // The pool hands it out again in the order of the current stream, and of no other.
    if (kernel.workspace_bytes > 0 && first.api != nullptr && first.api->allocate != nullptr &&
        !workspace.take(kernel.workspace_bytes, *first.api, first.device)) {
      return false;
    }
  }
  for (std::size_t i = 0; i < kernel.tensors; ++i) {
    if (!tensors[i].view->asks_stream || announce_stream(tensors[i].array, stream)) continue;
    raise_current(problem, name(i));
    return false;
  }

  const ContextScope context(kernel.device);
  if (context.failure() != nullptr) {
    raise(problem, "%s", context.failure());
    return false;
  }
  int status = 0;
  {
    const WithoutGil released;  // a launch waits where the queue of its stream is full
    status = kw_launch(kernel.handle, stream, addresses, kernel.tensors, scalars, scalar_count,
                       workspace.address());
  }
  if (status != 0) raise(problem, "%s", kw_last_error());
  return status == 0;
}

}  // namespace kernwright::python
