#include "python/extension/operation_call.h"

#include <cstring>
#include <string>

#include "python/extension/arrays/array_view.h"
#include "python/extension/arrays/results.h"
#include "python/extension/arrays/stacked_array.h"
#include "python/extension/arrays/torch_tensor.h"
#include "python/extension/errors.h"
#include "python/extension/kernel_object.h"
#include "python/extension/launch.h"

namespace kernwright::python {
namespace {

constexpr Py_ssize_t kMostArrays = 24;

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

  /// Returns all that a plan depends on, as bytes.
  PyObject* signature() const {
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
      append(array.shape, bytes);
      append(array.strides, bytes);
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

PyObject* run_call(PyObject* plans, PyObject* ran, PyObject* tag, PyObject* inputs, PyObject* outs,
                   PyObject* scalars, bool take_stacks) {
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
  if (found == nullptr) {
    if (PyErr_Occurred() != nullptr) return nullptr;
    Py_RETURN_NONE;
  }
  const Ref plan = Ref::to(found);
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
  if (count < 6 || count > 7 || PyDict_Check(given[0]) == 0 || PyDict_Check(given[1]) == 0 ||
      !is_tuple(2) || PyTuple_Size(given[2]) < 1 || !is_tuple(3) || !is_tuple(4) || !is_tuple(5)) {
    return PyErr_Format(PyExc_TypeError, "run() takes two dicts, a tag and three tuples");
  }
  const bool take_stacks = count == 7 && given[6] == Py_True;
  return run_call(given[0], given[1], given[2], given[3], given[4], given[5], take_stacks);
}

PyObject* signature(PyObject*, PyObject* const* given, Py_ssize_t count) {
  Arrays arrays(true);
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!arrays.add(given[i])) return nullptr;
  }
  return arrays.signature();
}

}  // namespace kernwright::python
