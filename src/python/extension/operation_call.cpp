#include "python/extension/operation_call.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "python/extension/arrays/array_view.h"
#include "python/extension/arrays/results.h"
#include "python/extension/arrays/stacked_array.h"
#include "python/extension/arrays/torch_tensor.h"
#include "python/extension/errors.h"
#include "python/extension/kernel_object.h"
#include "python/extension/launch.h"

namespace kernwright::python {
namespace {

constexpr Py_ssize_t kMostArrays = 28;

/// The arrays of a call, inputs and then outputs, each read once.
class Arrays {
 public:
  /// `take_stacks`: tuples of stacked arrays count as arrays.
  explicit Arrays(bool take_stacks) : take_stacks_(take_stacks) {}

  /// Returns false with kernwright.Error set if one of them is neither an array nor None.
  bool add(PyObject* array) {
    if (count_ == kMostArrays) {
      PyErr_Format(PyExc_TypeError, "more than %zd arrays", kMostArrays);
      return false;
    }
    if (array != Py_None && !read(array, views_.make(i()))) {
      const std::string what = "array " + std::to_string(count_ + 1) + " of the call";
      raise_current("", what.c_str());
      return false;
    }
    objects_[count_] = stacked_[count_] > 0 ? PyTuple_GetItem(array, 0) : array;
    ++count_;
    return true;
  }
  bool add_all(PyObject* tuple) {
    const Py_ssize_t count = PyTuple_Size(tuple);
    for (Py_ssize_t i = 0; i < count; ++i) {
      if (!add(PyTuple_GetItem(tuple, i))) return false;
    }
    return true;
  }

  Kept& kept() { return kept_; }
  Py_ssize_t size() const { return count_; }
  /// Returns true if members of a tuple are apart, so that there is no array of all of them.
  bool apart() const { return apart_; }
  PyObject* object(Py_ssize_t i) const { return objects_[i]; }
  bool is_there(Py_ssize_t i) const { return objects_[i] != Py_None; }
  const ArrayView& view(Py_ssize_t i) const { return views_[static_cast<std::size_t>(i)]; }

  /// Returns true if nobody knows the GPU of one of them.
  bool on_unknown_gpu() const {
    for (Py_ssize_t i = 0; i < count_; ++i) {
      if (is_there(i) && view(i).device.id < 0) return true;
    }
    return false;
  }

  /// Returns true if nobody expects a derivative of the results of `operation` from them. Returns
  /// false with kernwright.Error set.
  bool need_no_derivative(PyObject* operation) const {
    PyObject* tensors[kMostArrays];
    std::size_t count = 0;
    for (Py_ssize_t i = 0; i < count_; ++i) {
      if (is_there(i) && view(i).is_tensor) tensors[count++] = object(i);
    }
    return python::need_no_derivative(tensors, count, operation);
  }

  /// Returns all that a plan depends on, as bytes; without sizes, all that patterns are kept by.
  PyObject* signature(bool with_sizes = true) const {
    struct Header {
      dlpack::DataType dtype;
      dlpack::Device device;
      std::int32_t ndim;
    };
    char buffer[kMostArrays *
                (sizeof(Header) + sizeof(std::int64_t) * (2 * kMostDims + kMostStacked))];
    char* end = buffer;
    const auto append = [&end](const void* bytes, std::size_t size) {
      std::memcpy(end, bytes, size);
      end += size;
    };
    for (Py_ssize_t i = 0; i < count_; ++i) {
      Header header{{}, {}, -1};
      if (is_there(i)) header = {view(i).dtype, view(i).device, view(i).ndim};
      append(&header, sizeof(header));
      if (header.ndim <= 0) continue;
      const ArrayView& array = view(i);
      const auto bytes = sizeof(std::int64_t) * static_cast<std::size_t>(header.ndim);
      if (with_sizes) {
        append(array.shape, bytes);
        append(array.strides, bytes);
      }
      append(rows_[i], sizeof(std::int64_t) * static_cast<std::size_t>(stacked_[i]));
    }
    return PyBytes_FromStringAndSize(buffer, end - buffer);
  }

 private:
  std::size_t i() const { return static_cast<std::size_t>(count_); }
  bool read(PyObject* array, ArrayView& view) {
    if (!take_stacks_ || PyTuple_Check(array) == 0) return read_array(array, view, kept_);
    const Stack stack = read_stacked(array, view, rows_[count_], kept_);
    stacked_[count_] = static_cast<int>(PyTuple_Size(array));
    if (stack == Stack::kApart) apart_ = true;
    return stack != Stack::kUnreadable;
  }

  PyObject* objects_[kMostArrays];
  ViewRoom<kMostArrays> views_;
  std::int64_t rows_[kMostArrays][kMostStacked];  ///< of each member of a tuple
  int stacked_[kMostArrays] = {};                 ///< members of the tuple; 0: it is not a tuple
  Py_ssize_t count_ = 0;
  bool take_stacks_, apart_ = false;
  Kept kept_;
};

/// A kw_pattern, and the service whose kernels it finds.
struct Pattern {
  kw_pattern* handle;
  kw_service* service;
  Ref capsule;  ///< of the service

  Pattern(kw_pattern* made, kw_service* of, PyObject* in)
      : handle(made), service(of), capsule(Ref::to(in)) {}
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;
  ~Pattern() { kw_release_pattern(handle); }
};

constexpr const char* kPatternCapsule = "kernwright.pattern";

void release_pattern(PyObject* capsule) {
  delete static_cast<Pattern*>(PyCapsule_GetPointer(capsule, kPatternCapsule));
}

/// The plan that follows from a known pattern, for a call of sizes that were not planned.
class PatternPlan {
 public:
  PatternPlan(const Arrays& arrays, Py_ssize_t first) : arrays_(arrays), first_(first) {
    for (Py_ssize_t i = 0; i < arrays_.size(); ++i) {
      if (!arrays_.is_there(i)) continue;
      const ArrayView& view = arrays_.view(i);
      for (const std::int64_t* values : {view.shape, view.strides}) {
        for (int axis = 0; axis < view.ndim; ++axis) numbers_[count_++] = values[axis];
      }
    }
  }

  /// Tries (pattern, kernel, outputs): the kernel and the outputs are those of a plan of the same
  /// pattern. Returns null if no kernel is found, or with a Python error set.
  Ref find(PyObject* known) {
    PyObject *capsule = nullptr, *like = nullptr, *outputs = nullptr;
    if (PyArg_ParseTuple(known, "OOO!", &capsule, &like, &PyTuple_Type, &outputs) == 0) {
      return Ref();
    }
    const auto* pattern =
        static_cast<const Pattern*>(PyCapsule_GetPointer(capsule, kPatternCapsule));
    const KernelState* kernel = kernel_of(like);
    if (pattern == nullptr || kernel == nullptr) {
      if (pattern != nullptr) PyErr_SetString(PyExc_TypeError, "a pattern has no kernel");
      return Ref();
    }
    if (!count_made(outputs)) return Ref();
    kw_kernel* found = nullptr;
    int follows = 0;
    int status = 0;
    {
      const WithoutGil released;  // it may wait for others that load the same kernel
      status = kw_find_by_pattern(pattern->service, pattern->handle, numbers_, count_, made_,
                                  made_count_, &follows, &found);
    }
    follows_ = follows_ || (status == 0 && follows != 0);
    if (status != 0 || found == nullptr) return Ref();
    const Ref new_outputs(size_outputs(outputs));
    if (!new_outputs || tensors_ != kernel->tensors) {
      kw_release(found);
      return Ref();
    }
    const Ref made(make_kernel_like(like, found, layouts_));
    return made ? Ref(PyTuple_Pack(2, made.get(), new_outputs.get())) : Ref();
  }

  /// Returns true if the arrays follow a pattern.
  bool follows() const { return follows_; }

 private:
  /// Counts the sizes of the results that are made. Returns false with a Python error set.
  bool count_made(PyObject* outputs) {
    made_count_ = 0;
    if (PyTuple_Size(outputs) != arrays_.size() - first_) {
      PyErr_SetString(PyExc_ValueError, "the pattern has another number of outputs");
      return false;
    }
    for (Py_ssize_t i = 0; i < PyTuple_Size(outputs); ++i) {
      if (!is_made(outputs, i)) continue;
      const Py_ssize_t ndim = PyTuple_Size(PyTuple_GetItem(PyTuple_GetItem(outputs, i), 0));
      if (ndim < 0 || ndim > kMostDims) return false;
      made_count_ += static_cast<std::size_t>(ndim);
    }
    return true;
  }
  bool is_made(PyObject* outputs, Py_ssize_t i) const {
    return !arrays_.is_there(first_ + i) && PyTuple_GetItem(outputs, i) != Py_None;
  }

  /// Returns the outputs with their sizes, and finds the layouts of all tensors.
  PyObject* size_outputs(PyObject* outputs) {
    tensors_ = 0;
    for (Py_ssize_t i = 0; i < first_; ++i) {
      if (arrays_.is_there(i)) add_array(arrays_.view(i));
    }
    Ref sized(PyTuple_New(PyTuple_Size(outputs)));
    const long long* size = made_;
    for (Py_ssize_t i = 0; sized && i < PyTuple_Size(outputs); ++i) {
      if (arrays_.is_there(first_ + i)) add_array(arrays_.view(first_ + i));
      PyObject* output = PyTuple_GetItem(outputs, i);
      if (!is_made(outputs, i)) {
        PyTuple_SetItem(sized.get(), i, Ref::to(Py_None).release());
        continue;
      }
      const Py_ssize_t ndim = PyTuple_Size(PyTuple_GetItem(output, 0));
      PyObject* swap = PyTuple_GetItem(output, 2);
      const Ref shape(PyTuple_New(ndim));
      for (Py_ssize_t axis = 0; shape && axis < ndim; ++axis) {
        PyTuple_SetItem(shape.get(), axis, PyLong_FromLongLong(size[axis]));
      }
      if (!shape || !add_made(size, static_cast<int>(ndim), swap)) return nullptr;
      size += ndim;
      PyTuple_SetItem(sized.get(), i,
                      PyTuple_Pack(3, shape.get(), PyTuple_GetItem(output, 1), swap));
    }
    return PyErr_Occurred() == nullptr ? sized.release() : nullptr;
  }
  void add_array(const ArrayView& view) {
    layouts_[tensors_++] = {view.ndim, view.shape, view.strides};
  }
  /// Adds a result that is made contiguous, with two axes that are swapped then. Returns false with
  /// a Python error set.
  bool add_made(const long long* size, int ndim, PyObject* swap) {
    std::int64_t* shape = made_shapes_[tensors_];
    std::int64_t* strides = made_strides_[tensors_];
    std::int64_t stride = 1;
    for (int axis = ndim; axis-- > 0;) {
      shape[axis] = size[axis];
      strides[axis] = stride;
      if (__builtin_mul_overflow(stride, std::max(shape[axis], std::int64_t{1}), &stride)) {
        PyErr_SetString(PyExc_ValueError, "no array has this shape");
        return false;
      }
    }
    if (swap != Py_None) {
      int a = 0;
      int b = 0;
      if (PyArg_ParseTuple(swap, "ii", &a, &b) == 0) return false;
      if (std::min(a, b) < 0 || std::max(a, b) >= ndim) {
        PyErr_SetString(PyExc_ValueError, "the pattern swaps axes that are not there");
        return false;
      }
      std::swap(shape[a], shape[b]);
      std::swap(strides[a], strides[b]);
    }
    layouts_[tensors_++] = {ndim, shape, strides};
    return true;
  }

  const Arrays& arrays_;
  Py_ssize_t first_;
  bool follows_ = false;
  std::size_t count_ = 0, made_count_ = 0, tensors_ = 0;
  long long numbers_[kMostArrays * 2 * kMostDims];
  long long made_[kMostArrays * kMostDims];
  std::int64_t made_shapes_[kMostArrays][kMostDims];
  std::int64_t made_strides_[kMostArrays][kMostDims];
  TensorLayout layouts_[kMostArrays];
};

/// Removes the oldest item of a dict if it is full, so that no call waits until all are released.
/// Returns false with a Python error set.
bool remove_oldest(PyObject* dict) {
  Py_ssize_t at = 0;
  PyObject* key = nullptr;
  if (PyDict_Size(dict) < kMostPlans || PyDict_Next(dict, &at, &key, nullptr) == 0) return true;
  const Ref oldest = Ref::to(key);
  return PyDict_DelItem(dict, oldest.get()) == 0;
}

/// Returns the plan of a call by the patterns that are known for its tag, and keeps it under `key`.
/// Returns null without a plan, or with a Python error set.
Ref plan_by_pattern(PyObject* plans, PyObject* key, PyObject* patterns, PyObject* tag,
                    const Arrays& arrays, Py_ssize_t first, bool& follows) {
  if (arrays.on_unknown_gpu()) return Ref();  // its service depends on the current context
  const Ref bytes(arrays.signature(false));
  const Ref kept_by(bytes ? PyTuple_Pack(2, tag, bytes.get()) : nullptr);
  if (!kept_by) return Ref();
  const Ref known = Ref::to(PyDict_GetItemWithError(patterns, kept_by.get()));
  if (!known) return Ref();
  PatternPlan planned(arrays, first);
  Ref plan;
  // Another thread may add one meanwhile, but none is taken away.
  for (Py_ssize_t i = 0; !plan && i < PyList_Size(known.get()); ++i) {
    const Ref one = Ref::to(PyList_GetItem(known.get(), i));
    if (!one) return Ref();
    plan = planned.find(one.get());
    if (!plan && PyErr_Occurred() != nullptr) return Ref();
  }
  follows = planned.follows();
  if (!plan) return Ref();
  const bool is_kept = remove_oldest(plans) && PyDict_SetItem(plans, key, plan.get()) == 0;
  return is_kept ? std::move(plan) : Ref();
}

/// The results of a plan: the arrays that the caller passed, and new arrays in the other places.
class Results {
 public:
  /// `first` is the place of the first output among the arrays. Returns false with a Python error
  /// set.
  bool complete(Arrays& arrays, Py_ssize_t first, PyObject* outputs) {
    count_ = arrays.size() - first;
    if (PyTuple_Check(outputs) == 0 || PyTuple_Size(outputs) != count_) {
      PyErr_SetString(PyExc_ValueError, "the plan has another number of outputs");
      return false;
    }
    Py_ssize_t like = 0;
    while (like < first && !arrays.is_there(like)) ++like;
    for (Py_ssize_t i = 0; i < count_; ++i) {
      if (arrays.is_there(first + i)) {
        made_[i] = Ref::to(arrays.object(first + i));
        continue;
      }
      if (PyTuple_GetItem(outputs, i) == Py_None) continue;  // the problem does not have it
      if (like == first) {
        PyErr_SetString(PyExc_TypeError, "no array is given");
        return false;
      }
      if (!make(arrays.object(like), arrays.view(like), PyTuple_GetItem(outputs, i), i,
                arrays.kept())) {
        raise_current("", "the result");
        return false;
      }
    }
    return true;
  }

  bool is_there(Py_ssize_t i) const { return static_cast<bool>(made_[i]); }
  Tensor tensor(const Arrays& arrays, Py_ssize_t first, Py_ssize_t i) const {
    if (arrays.is_there(first + i)) return {made_[i].get(), &arrays.view(first + i), false};
    return {made_[i].get(), &views_[static_cast<std::size_t>(i)], true};
  }

  /// Returns one array, or a tuple of several.
  PyObject* give() {
    Py_ssize_t there = 0;
    for (Py_ssize_t i = 0; i < count_; ++i) there += is_there(i) ? 1 : 0;
    PyObject* tuple = there == 1 ? nullptr : PyTuple_New(there);
    if (tuple == nullptr && there != 1) return nullptr;
    Py_ssize_t at = 0;
    for (Py_ssize_t i = 0; i < count_; ++i) {
      if (!is_there(i)) continue;
      if (tuple == nullptr) return made_[i].release();
      PyTuple_SetItem(tuple, at++, made_[i].release());
    }
    return tuple;
  }

 private:
  /// Makes the result `i` as `output` says: (shape, dtype, two axes that are then swapped or None).
  bool make(PyObject* like, const ArrayView& like_view, PyObject* output, Py_ssize_t i,
            Kept& kept) {
    PyObject* shape = nullptr;
    const char* dtype = nullptr;
    PyObject* swap = nullptr;
    if (PyTuple_Check(output) == 0) {
      PyErr_SetString(PyExc_TypeError, "an output of the plan is no tuple");
      return false;
    }
    if (PyArg_ParseTuple(output, "O!sO", &PyTuple_Type, &shape, &dtype, &swap) == 0) return false;
    const auto at = static_cast<std::size_t>(i);
    made_[i] = make_result(like, like_view, shape, dtype, views_.make(at), kept);
    if (!made_[i] || swap == Py_None) return static_cast<bool>(made_[i]);
    const Ref method(PyObject_GetAttrString(made_[i].get(), "swapaxes"));
    const Ref axes(PySequence_Tuple(swap));
    made_[i] = Ref(method && axes ? PyObject_CallObject(method.get(), axes.get()) : nullptr);
    return made_[i] && read_array(made_[i].get(), views_.make(at), kept);
  }

  Ref made_[kMostArrays];
  ViewRoom<kMostArrays> views_;
  Py_ssize_t count_ = 0;
};

/// Launches on the inputs that are there and on the results. Returns false with a Python error set.
bool launch_on(const KernelState& kernel, Arrays& arrays, Py_ssize_t first, const Results& results,
               PyObject* given_scalars) {
  const Py_ssize_t scalar_count = PyTuple_Size(given_scalars);
  Tensor tensors[kMostArrays];
  std::size_t count = 0;
  for (Py_ssize_t i = 0; i < first; ++i) {
    if (arrays.is_there(i)) tensors[count++] = {arrays.object(i), &arrays.view(i), false};
  }
  for (Py_ssize_t i = first; i < arrays.size(); ++i) {
    if (!results.is_there(i - first)) continue;
    tensors[count++] = results.tensor(arrays, first, i - first);
  }
  const auto scalars_given = static_cast<std::size_t>(scalar_count);
  if (count != kernel.tensors) {
    PyErr_Format(PyExc_ValueError, "%zu tensors, and %zu expected", count, kernel.tensors);
    raise_current(kernel.problem.c_str(), "the call");
    return false;
  }
  if (!count_fits(kernel, count + scalars_given)) return false;
  double scalars[kMostArguments];
  for (std::size_t i = 0; i < scalars_given; ++i) {
    scalars[i] = PyFloat_AsDouble(PyTuple_GetItem(given_scalars, static_cast<Py_ssize_t>(i)));
    if (PyErr_Occurred() == nullptr) continue;
    raise_current(kernel.problem.c_str(), kernel.arguments[count + i].name.c_str());
    return false;
  }
  return launch(kernel, tensors, scalars, scalars_given, nullptr, arrays.kept());
}

/// `patterns` may be null.
PyObject* run_call(PyObject* plans, PyObject* ran, PyObject* tag, PyObject* inputs, PyObject* outs,
                   PyObject* scalars, bool take_stacks, PyObject* patterns) {
  Arrays arrays(take_stacks);
  Py_ssize_t first = 0;
  const bool all_read = arrays.add_all(inputs) && (first = arrays.size(), arrays.add_all(outs));
  if (!all_read) {
    if (PyErr_ExceptionMatches(error_class()) == 0) return nullptr;
    // The code that makes the plan knows the array's name, and refuses it by that name.
    PyErr_Clear();
    Py_RETURN_NONE;
  }
  if (arrays.apart()) Py_RETURN_NOTIMPLEMENTED;
  if (!arrays.need_no_derivative(PyTuple_GetItem(tag, 0))) return nullptr;
  const Ref bytes(arrays.signature());
  const Ref key(bytes ? PyTuple_Pack(2, tag, bytes.get()) : nullptr);
  if (!key) return nullptr;
  PyObject* found = PyDict_GetItemWithError(plans, key.get());
  if (found == nullptr && PyErr_Occurred() != nullptr) return nullptr;
  Ref plan = Ref::to(found);
  if (!plan) {
    bool follows = false;
    if (patterns != nullptr) {
      plan = plan_by_pattern(plans, key.get(), patterns, tag, arrays, first, follows);
    }
    if (!plan && PyErr_Occurred() != nullptr) return nullptr;
    if (!plan) return Ref::to(follows ? Py_False : Py_None).release();
    found = plan.get();
  }
  if (PyTuple_Check(found) == 0 || PyTuple_Size(found) != 2) {
    return PyErr_Format(PyExc_TypeError, "a plan is %R, and a pair expected", Py_TYPE(found));
  }
  PyObject* handle = PyTuple_GetItem(found, 0);
  PyObject* outputs = PyTuple_GetItem(found, 1);
  const KernelState* kernel = kernel_of(handle);
  if (kernel == nullptr && handle != Py_None) {
    return PyErr_Format(PyExc_TypeError, "a plan has %R for a kernel", Py_TYPE(handle));
  }
  Results results;
  if (!results.complete(arrays, first, outputs)) return nullptr;
  if (kernel != nullptr) {
    if (PyDict_SetItem(ran, PyTuple_GetItem(tag, 0), handle) != 0) return nullptr;
    if (!launch_on(*kernel, arrays, first, results, scalars)) return nullptr;
  }
  return results.give();
}

}  // namespace

PyObject* run(PyObject*, PyObject* const* given, Py_ssize_t count) {
  const auto is_tuple = [given](int i) { return PyTuple_Check(given[i]) != 0; };
  if (count < 6 || count > 8 || PyDict_Check(given[0]) == 0 || PyDict_Check(given[1]) == 0 ||
      !is_tuple(2) || PyTuple_Size(given[2]) < 1 || !is_tuple(3) || !is_tuple(4) || !is_tuple(5) ||
      (count > 7 && PyDict_Check(given[7]) == 0)) {
    return PyErr_Format(PyExc_TypeError, "run() takes two dicts, a tag and three tuples");
  }
  const bool take_stacks = count > 6 && given[6] == Py_True;
  return run_call(given[0], given[1], given[2], given[3], given[4], given[5], take_stacks,
                  count > 7 ? given[7] : nullptr);
}

PyObject* give_pattern(kw_pattern* pattern, kw_service* service, PyObject* capsule) {
  auto given = std::make_unique<Pattern>(pattern, service, capsule);
  PyObject* made = PyCapsule_New(given.get(), kPatternCapsule, release_pattern);
  if (made != nullptr) given.release();  // NOLINT(bugprone-unused-return-value): the capsule has it
  return made;
}

PyObject* make_room(PyObject*, PyObject* dict) {
  if (PyDict_Check(dict) == 0) return PyErr_Format(PyExc_TypeError, "make_room() takes a dict");
  return remove_oldest(dict) ? Ref::to(Py_None).release() : nullptr;
}

namespace {

PyObject* signature_of(PyObject* const* given, Py_ssize_t count, bool with_sizes) {
  Arrays arrays(true);
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!arrays.add(given[i])) return nullptr;
  }
  return arrays.signature(with_sizes);
}

}  // namespace

PyObject* signature(PyObject*, PyObject* const* given, Py_ssize_t count) {
  return signature_of(given, count, true);
}

PyObject* kinds(PyObject*, PyObject* const* given, Py_ssize_t count) {
  return signature_of(given, count, false);
}

}  // namespace kernwright::python
