// kernwright._kernwright: the C API for Python. Conveniences are added above it, in Python.

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "python/extension/arrays/array_view.h"
#include "python/extension/arrays/driver_context.h"
#include "python/extension/arrays/stacked_array.h"
#include "python/extension/arrays/torch_tensor.h"
#include "python/extension/errors.h"
#include "python/extension/graph_objects.h"
#include "python/extension/guard_object.h"
#include "python/extension/interruptible.h"
#include "python/extension/kernel_object.h"
#include "python/extension/operation_call.h"
#include "python/extension/python.h"
#include <kernwright/c.h>

namespace kernwright::python {
namespace {

constexpr const char* kServiceCapsule = "kernwright.service";

/// Messages come from any thread.
void log_message(void* queue, int level, const char* message) {
  if (Py_IsInitialized() == 0) return;
  try {
    static_cast<LogQueue*>(queue)->tell(level, message);
  } catch (const std::exception&) {  // without memory a message is lost
  }
}

/// Returns null with a Python error set.
ServiceState* service_of(PyObject* capsule) {
  return static_cast<ServiceState*>(PyCapsule_GetPointer(capsule, kServiceCapsule));
}

void close_service(PyObject* capsule) {
  const std::unique_ptr<ServiceState> service(service_of(capsule));
  {
    const WithoutGil released;
    kw_close(service->handle);
  }
  if (service->log != nullptr && !service->log->hand_on()) PyErr_WriteUnraisable(capsule);
}

/// A path as the library takes it: the text of a str or of an os.PathLike in the file system's
/// encoding.
class Path {
 public:
  /// Returns false with a Python error set.
  bool read(PyObject* path) {
    PyObject* bytes = nullptr;
    if (PyUnicode_FSConverter(path, &bytes) == 0) return false;
    bytes_ = Ref(bytes);
    return true;
  }
  /// Does the same; None means no path.
  bool read_optional(PyObject* path) { return path == Py_None || read(path); }
  const char* text() const { return bytes_ ? PyBytes_AsString(bytes_.get()) : nullptr; }

 private:
  Ref bytes_;
};

/// A sequence of str, kept as C strings.
class Strings {
 public:
  /// Returns false with a Python error set.
  bool read(PyObject* sequence) {
    const Ref iterator(PyObject_GetIter(sequence));
    while (iterator) {
      const Ref item(PyIter_Next(iterator.get()));
      if (!item) return PyErr_Occurred() == nullptr;
      if (!add(item.get())) return false;
    }
    return false;
  }
  std::size_t size() const { return texts_.size(); }
  /// Valid until something is added.
  const char* const* data() {
    pointers_.clear();
    for (const std::string& text : texts_) pointers_.push_back(text.c_str());
    return pointers_.data();
  }

 private:
  bool add(PyObject* item) {
    Path path;
    if (!path.read(item)) return false;
    texts_.emplace_back(path.text());
    return true;
  }

  std::vector<std::string> texts_;
  std::vector<const char*> pointers_;
};

constexpr const char* kOpenDoc =
    "open_service(cache, sku, on_miss, device, tune_seconds, l2, worker, min_match, caches, "
    "templates, epilogues, background_seconds, compile_threads, check_launches, log, "
    "signed_caches)\n\n"
    "Opens a service with kw_options' fields of these names; None takes a field's default.";
PyObject* open_service(PyObject*, PyObject* given) {
  kw_options options{};
  options.struct_size = sizeof(options);
  PyObject *cache = nullptr, *caches = nullptr, *templates = nullptr, *epilogues = nullptr,
           *log = nullptr;
  PyObject* signed_caches = nullptr;
  if (PyArg_ParseTuple(given, "OzzidzzzOOOdipOO", &cache, &options.sku, &options.on_miss,
                       &options.device, &options.tune_seconds, &options.l2, &options.worker,
                       &options.min_match, &caches, &templates, &epilogues,
                       &options.background_seconds, &options.compile_threads,
                       &options.check_launches, &log, &signed_caches) == 0) {
    return nullptr;
  }
  Path cache_path;
  Strings cache_list, template_list, epilogue_list, signed_list;
  if (!cache_path.read_optional(cache) || !cache_list.read(caches) ||
      !template_list.read(templates) || !epilogue_list.read(epilogues) ||
      !signed_list.read(signed_caches)) {
    return nullptr;
  }
  options.cache = cache_path.text();
  options.read_only_caches = cache_list.data();
  options.read_only_cache_count = cache_list.size();
  options.template_dirs = template_list.data();
  options.template_dir_count = template_list.size();
  options.epilogues = epilogue_list.data();
  options.epilogue_count = epilogue_list.size();
  options.signed_caches = signed_list.data();
  options.signed_cache_count = signed_list.size();
  auto service = std::make_unique<ServiceState>();
  if (log != Py_None) {
    service->log = std::make_shared<LogQueue>(log);
    options.log = log_message;
    options.log_data = service->log.get();
  }
  int status = 0;
  {
    const WithoutGil released;
    status = kw_open(&options, &service->handle);
  }
  const Failure failure = status == 0 ? Failure() : Failure::last();
  if (service->log != nullptr && !service->log->hand_on()) {
    kw_close(service->handle);
    return nullptr;
  }
  if (status != 0) return failure.raise("");
  PyObject* capsule = PyCapsule_New(service.get(), kServiceCapsule, close_service);
  if (capsule == nullptr) {
    kw_close(service->handle);
    return nullptr;
  }
  service.release();  // NOLINT(bugprone-unused-return-value): the capsule has it
  return capsule;
}

/// Returns the kernel that `find` finds, as an object of `type`.
template <typename Find>
PyObject* found_kernel(PyObject* capsule, PyObject* type, const char* problem, const Find& find,
                       const std::function<bool()>& meanwhile = {}) {
  const ServiceState* service = service_of(capsule);
  if (service == nullptr) return nullptr;
  kw_kernel* kernel = nullptr;
  Failure failure;
  const bool finished = run_interruptibly(
      *service,
      [&] {
        if (find(service->handle, &kernel) != 0) failure = Failure::last();
      },
      meanwhile);
  if (!finished) {
    kw_release(kernel);
    return nullptr;
  }
  if (kernel == nullptr) return failure.raise(problem);
  return make_kernel(type, kernel, problem);
}

constexpr const char* kBestDoc =
    "best_kernel(service, type, problem, stream=None) -> type\n\n"
    "Returns the best kernel for a problem in text form, as an object of a class of "
    "KernelHandle, for a launch on `stream`, a number, or None if that is not known. The GIL is "
    "released meanwhile, and Ctrl-C ends a tuning.";
PyObject* best_kernel(PyObject*, PyObject* given) {
  PyObject *capsule = nullptr, *type = nullptr;
  PyObject* stream = Py_None;
  const char* problem = nullptr;
  if (PyArg_ParseTuple(given, "OOs|O", &capsule, &type, &problem, &stream) == 0) return nullptr;
  const bool known = stream != Py_None;
  void* where = known ? PyLong_AsVoidPtr(stream) : nullptr;
  if (PyErr_Occurred() != nullptr) return nullptr;
  return found_kernel(capsule, type, problem, [&](kw_service* service, kw_kernel** kernel) {
    return known ? kw_get_best_kernel_on(service, problem, where, kernel)
                 : kw_get_best_kernel(service, problem, kernel);
  });
}

constexpr const char* kBestSeveralDoc =
    "best_kernels(service, type, problem, most) -> list\n\n"
    "Returns the best kernel and the kernels that may take its place in a chain, the most "
    "promising first.";
PyObject* best_kernels(PyObject*, PyObject* given) {
  PyObject *capsule = nullptr, *type = nullptr;
  const char* problem = nullptr;
  Py_ssize_t most = 0;
  if (PyArg_ParseTuple(given, "OOsn", &capsule, &type, &problem, &most) == 0) return nullptr;
  constexpr Py_ssize_t kMost = 1024;  // more than a problem has
  if (most < 1) return PyErr_Format(PyExc_ValueError, "most is %zd, and at least 1 expected", most);
  const ServiceState* service = service_of(capsule);
  if (service == nullptr) return nullptr;
  std::vector<kw_kernel*> kernels(static_cast<std::size_t>(std::min(most, kMost)), nullptr);
  std::size_t count = 0;
  Failure failure;
  const bool finished = run_interruptibly(*service, [&] {
    if (kw_get_best_kernels(service->handle, problem, kernels.data(), kernels.size(), &count) !=
        0) {
      failure = Failure::last();
    }
  });
  Ref list(finished && failure.reason.empty() ? PyList_New(0) : nullptr);
  for (std::size_t i = 0; i < count; ++i) {
    if (!list) {
      kw_release(kernels[i]);
      continue;
    }
    const Ref made(make_kernel(type, kernels[i], problem));
    if (!made || PyList_Append(list.get(), made.get()) != 0) list = Ref();
  }
  if (finished && !failure.reason.empty()) return failure.raise(problem);
  return list.release();
}

constexpr const char* kTuneDoc =
    "tune(service, type, problem, seconds, trials, strategy, watcher=None) -> type\n\n"
    "Tunes the problem, and returns what best_kernel() returns from then on. `seconds` and "
    "`trials` bound the search; seconds=0 is the default, trials=0 no bound. Meanwhile it calls "
    "watcher(candidates, measured, best_us, seconds), in the calling thread.";

/// The progress that the tuning thread reported, for the thread that waits for it.
class Told {
 public:
  static void tell(void* data, const kw_tune_progress* progress) {
    Told& told = *static_cast<Told*>(data);
    const std::lock_guard lock(told.mutex_);
    told.progress_ = *progress;
  }
  /// Passes new progress to `watcher`. Returns false with a Python error set.
  bool pass_on(PyObject* watcher) {
    std::optional<kw_tune_progress> at;
    {
      const std::lock_guard lock(mutex_);
      std::swap(at, progress_);
    }
    if (!at) return true;
    return static_cast<bool>(Ref(PyObject_CallFunction(watcher, "iidd", at->candidates,
                                                       at->measured, at->best_us, at->seconds)));
  }

 private:
  std::mutex mutex_;
  std::optional<kw_tune_progress> progress_;
};

PyObject* tune(PyObject*, PyObject* given) {
  PyObject *capsule = nullptr, *type = nullptr;
  const char* problem = nullptr;
  kw_tune_options options{};
  options.struct_size = sizeof options;
  PyObject* watcher = Py_None;
  if (PyArg_ParseTuple(given, "OOsdis|O", &capsule, &type, &problem, &options.seconds,
                       &options.trials, &options.strategy, &watcher) == 0) {
    return nullptr;
  }
  Told told;
  const bool is_watched = watcher != Py_None;
  if (is_watched) options.progress = Told::tell;
  options.data = &told;
  return found_kernel(
      capsule, type, problem,
      [&](kw_service* service, kw_kernel** kernel) {
        return kw_tune(service, problem, &options, kernel);
      },
      [&] { return !is_watched || told.pass_on(watcher); });
}

/// Runs `call` without the GIL. `call` returns 0 or leaves its reason in kw_last_error().
template <typename Call>
PyObject* done(const ServiceState& service, const Call& call) {
  Failure failure;
  int status = 0;
  const bool finished = run_interruptibly(service, [&] {
    status = call(service.handle);
    if (status != 0) failure = Failure::last();
  });
  if (!finished) return nullptr;
  if (status != 0) return failure.raise("");
  Py_RETURN_NONE;
}

/// Does the same for calls that finish at once.
template <typename Call>
bool call_service(PyObject* capsule, const char* problem, const Call& call) {
  const ServiceState* service = service_of(capsule);
  if (service == nullptr) return false;
  int status = 0;
  {
    const WithoutGil released;  // it may wait for a lock, and whoever has that for the GIL
    status = call(service->handle);
  }
  if (status != 0) Failure::last().raise(problem);
  return status == 0;
}

constexpr const char* kPrewarmDoc =
    "prewarm(service, problems)\n\nGets the best kernel of every problem into memory. The error "
    "lists every problem that cannot be served.";
PyObject* prewarm(PyObject*, PyObject* given) {
  PyObject *capsule = nullptr, *list = nullptr;
  if (PyArg_ParseTuple(given, "OO", &capsule, &list) == 0) return nullptr;
  const ServiceState* service = service_of(capsule);
  Strings problems;
  if (service == nullptr || !problems.read(list)) return nullptr;
  return done(*service, [&](kw_service* handle) {
    return kw_prewarm(handle, problems.data(), problems.size());
  });
}

constexpr const char* kPrewarmWorklistDoc =
    "prewarm_worklist(service, file)\n\n"
    "Does the same for the problems of a worklist file.";
PyObject* prewarm_worklist(PyObject*, PyObject* given) {
  PyObject *capsule = nullptr, *path = nullptr;
  if (PyArg_ParseTuple(given, "OO", &capsule, &path) == 0) return nullptr;
  const ServiceState* service = service_of(capsule);
  Path file;
  if (service == nullptr || !file.read(path)) return nullptr;
  return done(*service,
              [&](kw_service* handle) { return kw_prewarm_worklist(handle, file.text()); });
}

constexpr const char* kRecordDoc =
    "record_shapes(service, file)\n\nkw_record_shapes(); None ends the recording.";
PyObject* record_shapes(PyObject*, PyObject* given) {
  PyObject *capsule = nullptr, *path = nullptr;
  Path file;
  if (PyArg_ParseTuple(given, "OO", &capsule, &path) == 0 || !file.read_optional(path) ||
      !call_service(capsule, "",
                    [&](kw_service* service) { return kw_record_shapes(service, file.text()); })) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

constexpr const char* kAutotuneDoc = "autotune(service, seconds)\n\nkw_autotune(); 0 ends it.";
PyObject* autotune(PyObject*, PyObject* given) {
  PyObject* capsule = nullptr;
  double seconds = 0;
  if (PyArg_ParseTuple(given, "Od", &capsule, &seconds) == 0 ||
      !call_service(capsule, "",
                    [&](kw_service* service) { return kw_autotune(service, seconds); })) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

constexpr const char* kSealDoc = "seal(service, mode)\n\nkw_seal(): \"error\" or \"warning\".";
PyObject* seal(PyObject*, PyObject* given) {
  PyObject* capsule = nullptr;
  const char* mode = nullptr;
  if (PyArg_ParseTuple(given, "Os", &capsule, &mode) == 0 ||
      !call_service(capsule, "", [&](kw_service* service) { return kw_seal(service, mode); })) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

/// Returns the characters of a text, and releases it.
PyObject* take(kw_text* text) {
  PyObject* characters = text_from(kw_characters(text));
  kw_release_text(text);
  return characters;
}

/// Returns the text that `call` returns of a service.
template <typename Call>
PyObject* text_of(PyObject* capsule, const char* problem, const Call& call) {
  kw_text* text = nullptr;
  if (!call_service(capsule, problem, [&](kw_service* service) { return call(service, &text); })) {
    return nullptr;
  }
  return take(text);
}

constexpr const char* kMetricsDoc = "metrics(service) -> str\n\nkw_metrics()'s text.";
PyObject* metrics(PyObject*, PyObject* capsule) { return text_of(capsule, "", kw_metrics); }

constexpr const char* kRecordOfDoc =
    "record(service, problem, form) -> str\n\n"
    "Returns kw_record()'s text, \"json\" or \"html\".";
PyObject* record(PyObject*, PyObject* given) {
  PyObject* capsule = nullptr;
  const char *problem = nullptr, *form = nullptr;
  if (PyArg_ParseTuple(given, "Oss", &capsule, &problem, &form) == 0) return nullptr;
  return text_of(capsule, problem, [&](kw_service* service, kw_text** text) {
    return kw_record(service, problem, form, text);
  });
}

constexpr const char* kCountsDoc = "lookup_counts(service) -> str\n\nkw_lookup_counts()'s JSON.";
PyObject* lookup_counts(PyObject*, PyObject* capsule) {
  return text_of(capsule, "", kw_lookup_counts);
}

/// Reads a tuple of integers, or None as none. Returns false with a Python error set.
template <typename Integer>
bool read_integers(PyObject* tuple, std::vector<Integer>& values) {
  const Py_ssize_t count = tuple == Py_None ? 0 : PyTuple_Size(tuple);
  for (Py_ssize_t i = 0; i < count; ++i) {
    values.push_back(static_cast<Integer>(PyLong_AsLongLong(PyTuple_GetItem(tuple, i))));
  }
  return PyErr_Occurred() == nullptr;
}

/// The arguments of bind(), as kw_bind takes them.
class BoundCall {
 public:
  /// Returns false with a Python error set.
  bool read(PyObject* given) {
    PyObject *list = nullptr, *names = nullptr;
    if (PyArg_ParseTuple(given, "OsO!O", &service_, &options_, &PyTuple_Type, &list, &names) == 0 ||
        !scalars_.read(names)) {
      return false;
    }
    const auto count = static_cast<std::size_t>(PyTuple_Size(list));
    tensors_.resize(count);
    sizes_.resize(2 * count);
    orders_.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      if (!read_tensor(PyTuple_GetItem(list, static_cast<Py_ssize_t>(i)), i)) return false;
    }
    return true;
  }

  PyObject* service() const { return service_; }
  /// Calls kw_bind or kw_make_pattern.
  template <typename Function, typename Service, typename Result>
  int call(Function function, Service* service, Result** result) {
    return function(service, options_, tensors_.data(), tensors_.size(), scalars_.data(),
                    scalars_.size(), result);
  }

 private:
  bool read_tensor(PyObject* given, std::size_t i) {
    kw_tensor& tensor = tensors_[i];
    PyObject *shape = nullptr, *strides = nullptr, *order = nullptr;
    if (PyArg_ParseTuple(given, "sszO!OO", &tensor.name, &tensor.argument, &tensor.dtype,
                         &PyTuple_Type, &shape, &strides, &order) == 0 ||
        !read_integers(shape, sizes_[2 * i]) || !read_integers(strides, sizes_[2 * i + 1]) ||
        !read_integers(order, orders_[i])) {
      return false;
    }
    tensor.ndim = sizes_[2 * i].size();
    tensor.extent = sizes_[2 * i].data();
    if (strides != Py_None) tensor.strides = sizes_[2 * i + 1].data();
    if (!orders_[i].empty()) tensor.order = orders_[i].data();
    if ((strides == Py_None || sizes_[2 * i + 1].size() == tensor.ndim) &&
        (orders_[i].empty() || orders_[i].size() == tensor.ndim)) {
      return true;
    }
    PyErr_Format(PyExc_ValueError, "%s has %zd sizes, and not as many strides or axes", tensor.name,
                 static_cast<Py_ssize_t>(tensor.ndim));
    return false;
  }

  PyObject* service_ = nullptr;
  const char* options_ = nullptr;
  Strings scalars_;
  std::vector<kw_tensor> tensors_;
  std::vector<std::vector<long long>> sizes_;
  std::vector<std::vector<std::size_t>> orders_;
};

constexpr const char* kBindDoc =
    "bind(service, options, tensors, scalars) -> str\n\n"
    "Returns kw_bind()'s JSON. Each tensor is (name, argument, dtype, shape, strides, order), with "
    "None for a dtype or strides that are not compared, and for an order that is the operation's. "
    "None for the service: a built-in operation.";
PyObject* bind(PyObject*, PyObject* given) {
  BoundCall bound;
  if (!bound.read(given)) return nullptr;
  if (bound.service() != Py_None) {
    return text_of(bound.service(), "", [&](kw_service* service, kw_text** text) {
      return bound.call(kw_bind, service, text);
    });
  }
  kw_text* text = nullptr;
  if (bound.call(kw_bind, static_cast<kw_service*>(nullptr), &text) != 0) {
    return Failure::last().raise("");
  }
  return take(text);
}

constexpr const char* kMakePatternDoc =
    "make_pattern(service, options, tensors, scalars) -> pattern | None\n\n"
    "Returns kw_make_pattern()'s pattern of the arguments of bind(), for run().";
PyObject* make_pattern(PyObject*, PyObject* given) {
  BoundCall bound;
  kw_pattern* pattern = nullptr;
  kw_service* of = nullptr;
  if (!bound.read(given) || !call_service(bound.service(), "", [&](kw_service* service) {
        of = service;
        return bound.call(kw_make_pattern, service, &pattern);
      })) {
    return nullptr;
  }
  if (pattern == nullptr) Py_RETURN_NONE;
  return give_pattern(pattern, of, bound.service());
}

constexpr const char* kDescribeDoc =
    "describe_operation(name) -> str\n\nReturns kw_describe_operation()'s JSON.";
PyObject* describe_operation(PyObject*, PyObject* given) {
  const char* name = nullptr;
  kw_text* text = nullptr;
  if (PyArg_ParseTuple(given, "s", &name) == 0) return nullptr;
  if (kw_describe_operation(name, &text) != 0) return Failure::last().raise("");
  return take(text);
}

PyObject* integers(const std::int64_t* values, int count) {
  PyObject* tuple = PyTuple_New(count);
  for (int i = 0; tuple != nullptr && i < count; ++i) {
    PyTuple_SetItem(tuple, i, PyLong_FromLongLong(values[i]));
  }
  return tuple;
}

constexpr const char* kReadDoc =
    "read(array) -> (address, dtype, shape, strides, device)\n\n"
    "Returns kernwright's view of an array, or of a tuple of arrays that are stacked. dtype is "
    "None if kernwright has no name for it, strides count elements, and device is the GPU's "
    "number, or a text if the array is not on a GPU.";
PyObject* read(PyObject*, PyObject* array) {
  ArrayView view;
  Kept kept;
  std::int64_t rows[kMostStacked];
  if (PyTuple_Check(array) == 0) {
    if (!read_array(array, view, kept)) return nullptr;
    if (view.is_tensor && !holds_values(array)) return nullptr;
  } else if (const Stack stack = read_stacked(array, view, rows, kept); stack != Stack::kWhole) {
    if (stack == Stack::kApart) PyErr_SetString(PyExc_ValueError, "its arrays lie apart");
    return nullptr;
  }
  const int device = view.device.id >= 0 ? view.device.id : std::max(current_device(), 0);
  PyObject* place = view.on_gpu() ? PyLong_FromLong(device)
                                  : PyUnicode_FromString(place_name(view.device).c_str());
  return Py_BuildValue("(NzNNN)", PyLong_FromVoidPtr(view.data), dtype_name(view.dtype),
                       integers(view.shape, view.ndim), integers(view.strides, view.ndim), place);
}

constexpr const char* kStreamDoc =
    "current_stream(array) -> int or None\n\n"
    "Returns the current stream of the array's framework on its GPU, None if the framework does "
    "not say, and if it is not an array.";
PyObject* current_stream(PyObject*, PyObject* array) {
  ArrayView view;
  Kept kept;
  if (!read_array(array, view, kept)) {
    if (PyErr_ExceptionMatches(PyExc_Exception) == 0) return nullptr;
    PyErr_Clear();
    Py_RETURN_NONE;
  }
  if (!view.on_gpu() || view.api == nullptr || view.api->current_stream == nullptr) Py_RETURN_NONE;
  const int device = view.device.id >= 0 ? view.device.id : std::max(current_device(), 0);
  void* stream = nullptr;
  if (view.api->current_stream(dlpack::kCuda, device, &stream) != 0) {
    return raise_current("", "stream");
  }
  return PyLong_FromVoidPtr(stream);
}

PyObject* device(PyObject*, PyObject*) { return PyLong_FromLong(current_device()); }

PyObject* version(PyObject*, PyObject*) { return PyUnicode_FromString(kw_version()); }

PyMethodDef kFunctions[] = {
    {"open_service", method<open_service>(), METH_VARARGS, kOpenDoc},
    {"best_kernel", method<best_kernel>(), METH_VARARGS, kBestDoc},
    {"best_kernels", method<best_kernels>(), METH_VARARGS, kBestSeveralDoc},
    {"bake", method<bake>(), METH_FASTCALL, kBakeDoc},
    {"build_chain", method<build_chain>(), METH_VARARGS, kBuildChainDoc},
    {"bind", method<bind>(), METH_VARARGS, kBindDoc},
    {"make_pattern", method<make_pattern>(), METH_VARARGS, kMakePatternDoc},
    {"describe_operation", method<describe_operation>(), METH_VARARGS, kDescribeDoc},
    {"tune", method<tune>(), METH_VARARGS, kTuneDoc},
    {"prewarm", method<prewarm>(), METH_VARARGS, kPrewarmDoc},
    {"prewarm_worklist", method<prewarm_worklist>(), METH_VARARGS, kPrewarmWorklistDoc},
    {"lookup_counts", method<lookup_counts>(), METH_O, kCountsDoc},
    {"metrics", method<metrics>(), METH_O, kMetricsDoc},
    {"record", method<record>(), METH_VARARGS, kRecordOfDoc},
    {"seal", method<seal>(), METH_VARARGS, kSealDoc},
    {"record_shapes", method<record_shapes>(), METH_VARARGS, kRecordDoc},
    {"autotune", method<autotune>(), METH_VARARGS, kAutotuneDoc},
    {"current_stream", method<current_stream>(), METH_O, kStreamDoc},
    {"signature", method<signature>(), METH_FASTCALL, kSignatureDoc},
    {"make_room", method<make_room>(), METH_O, kMakeRoomDoc},
    {"kinds", method<kinds>(), METH_FASTCALL, kKindsDoc},
    {"run", method<run>(), METH_FASTCALL, kRunDoc},
    {"read", method<read>(), METH_O, kReadDoc},
    {"make_guard", method<make_guard>(), METH_VARARGS, kMakeGuardDoc},
    {"current_device", method<device>(), METH_NOARGS,
     "current_device() -> int\n\n"
     "Returns the GPU of the calling thread's context, -1 if it has none."},
    {"version", method<version>(), METH_NOARGS, "version() -> str\n\nThe version of the library."},
    {nullptr, nullptr, 0, nullptr}};  // namespace

PyModuleDef kModule = {PyModuleDef_HEAD_INIT,
                       "_kernwright",
                       "kernwright's C API.",
                       -1,
                       kFunctions,
                       nullptr,
                       nullptr,
                       nullptr,
                       nullptr};

}  // namespace
}  // namespace kernwright::python

PyMODINIT_FUNC PyInit__kernwright() {
  using namespace kernwright::python;
  Ref module(PyModule_Create(&kModule));
  PyObject* error = error_class();
  if (!module || error == nullptr || !watch_exit() || !add_kernel_type(module.get()) ||
      !add_baked_type(module.get()) || !add_chain_type(module.get()) ||
      !add_guard_type(module.get())) {
    return nullptr;
  }
  Py_INCREF(error);
  if (PyModule_AddObject(module.get(), "Error", error) != 0 ||
      PyModule_AddIntConstant(module.get(), "MOST_PLANS", kMostPlans) != 0) {
    return nullptr;
  }
  return module.release();
}
