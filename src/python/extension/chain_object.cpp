#include <algorithm>
#include <vector>

#include "python/extension/graph_handle.h"
#include "python/extension/graph_objects.h"
#include "python/extension/kernel_object.h"

namespace kernwright::python {
namespace {

/// A pointer that the caller passes. Every array that is passed later must have the layout of the
/// array that it was made with.
struct Parameter {
  ArrayView like;
  std::uint64_t bytes = 0;  ///< from its first to its last
  bool is_written = false;

  bool lies_as(const ArrayView& view) const {
    return view.dtype == like.dtype && view.ndim == like.ndim &&
           std::equal(like.shape, like.shape + like.ndim, view.shape) &&
           std::equal(like.strides, like.strides + like.ndim, view.strides);
  }
};

/// The places of the tensors of a step.
struct Step {
  const KernelState* kernel = nullptr;  ///< the first of its kernels
  struct Place {
    const void* fixed = nullptr;  ///< null: a slot
    std::ptrdiff_t parameter = -1;
    std::int64_t offset = 0;
  };
  std::vector<Place> places;

  /// Returns true if its outputs do not overlap other tensors. Buffers are not looked at. Returns
  /// false with kernwright.Error set.
  bool lies_apart(const std::vector<const void*>& addresses) const {
    const void* at[kMostArguments];
    for (std::size_t i = 0; i < places.size(); ++i) {
      const Place& place = places[i];
      at[i] = place.parameter < 0
                  ? place.fixed
                  : static_cast<const char*>(addresses[static_cast<std::size_t>(place.parameter)]) +
                        place.offset;
    }
    return apart(*kernel, at);
  }
};

struct ChainState : GraphState {
  kw_chain* handle = nullptr;
  std::vector<Parameter> parameters;
  std::vector<Step> steps;
  Ref written_always;  ///< a list of the PyTorch tensors that steps write and no rebind replaces

  /// Returns the tensors that launches write if these are the arrays of its parameters. Null with a
  /// Python error set.
  Ref find_written(const std::vector<PyObject*>& arrays) const {
    const Ref list(PySequence_List(written_always.get()));
    for (std::size_t i = 0; list && i < parameters.size(); ++i) {
      const Parameter& parameter = parameters[i];
      if (!parameter.is_written || !parameter.like.is_tensor) continue;
      if (PyList_Append(list.get(), arrays[i]) != 0) return Ref();
    }
    return Ref(list ? PyList_AsTuple(list.get()) : nullptr);
  }

  ChainState() { name = "a chain"; }
  ChainState(const ChainState&) = delete;
  ChainState& operator=(const ChainState&) = delete;
  ~ChainState() {
    if (handle == nullptr) return;
    const WithoutGil released;  // it may wait for the GPU
    kw_release_chain(handle);
  }
};
using ChainObject = GraphObject<ChainState>;

/// Reads the arguments of steps and adds them to a builder of the C API. Every function returns
/// false with a Python error set.
class Builder {
 public:
  explicit Builder(ChainState& state) : state_(state) {}
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;
  ~Builder() { kw_chain_end(builder_); }

  bool begin() {
    state_.written_always = Ref(PyList_New(0));
    return state_.written_always && expect(kw_chain_begin(&builder_));
  }

  bool add_parameter(PyObject* array) {
    const std::string what = "parameter " + std::to_string(state_.parameters.size());
    Parameter parameter;
    ArrayView& view = parameter.like;
    if (!read_array(array, view, bound_) || !bound_.add(array)) {
      raise_current("", what.c_str());
      return false;
    }
    if (!view.on_gpu()) {
      raise("", "%s lies on %s, and a GPU (CUDA) expected", what.c_str(),
            place_name(view.device).c_str());
      return false;
    }
    Expected layout;
    layout.dtype = view.dtype;
    layout.ndim = view.ndim;
    std::copy(view.shape, view.shape + view.ndim, layout.extent);
    std::copy(view.strides, view.strides + view.ndim, layout.strides);
    if (!find_footprint(layout)) {
      raise("", "%s has sizes or strides that no tensor has", what.c_str());
      return false;
    }
    parameter.bytes = layout.footprint.bytes;
    meet(view);
    state_.parameters.push_back(parameter);
    arrays_.push_back(array);
    std::size_t slot = 0;
    return expect(kw_chain_parameter(builder_, view.data, &slot));
  }

  bool add_buffer(PyObject* bytes) {
    const std::size_t size = PyLong_AsSize_t(bytes);
    if (PyErr_Occurred() != nullptr) return false;
    std::size_t slot = 0;
    ++buffers_;
    return expect(kw_chain_buffer(builder_, size, &slot));
  }

  bool add_step(PyObject* given) {
    if (PyTuple_Check(given) == 0) {
      PyErr_Format(PyExc_TypeError, "a step is %R, and a pair expected", Py_TYPE(given));
      return false;
    }
    PyObject *kernels = nullptr, *arguments = nullptr;
    if (PyArg_ParseTuple(given, "O!O!", &PyList_Type, &kernels, &PyTuple_Type, &arguments) == 0) {
      return false;
    }
    const Ref held(PyList_AsTuple(kernels));
    if (!held || !kept_.add(held.get())) return false;
    std::vector<kw_kernel*> handles;
    Step step;
    for (Py_ssize_t i = 0; i < PyTuple_Size(held.get()); ++i) {
      PyObject* item = PyTuple_GetItem(held.get(), i);
      const KernelState* kernel = kernel_of(item);
      if (kernel == nullptr) {
        PyErr_Format(PyExc_TypeError, "%R is no kernel", Py_TYPE(item));
        return false;
      }
      if (step.kernel == nullptr) step.kernel = kernel;
      handles.push_back(kernel->handle);
    }
    if (step.kernel == nullptr) {
      raise("", "a step without kernels");
      return false;
    }
    std::vector<kw_chain_arg> read;
    if (!read_arguments(arguments, step, read) || !can_launch(*step.kernel) ||
        !expect(kw_chain_add_alternatives(builder_, handles.data(), handles.size(), read.data(),
                                          read.size()))) {
      return false;
    }
    if (state_.device >= 0 && state_.device != step.kernel->device) {
      raise(step.kernel->problem.c_str(), "the kernel is for GPU %d, and the chain's first for %d",
            step.kernel->device, state_.device);
      return false;
    }
    state_.device = step.kernel->device;
    state_.steps.push_back(std::move(step));
    return true;
  }

  bool build() {
    if (state_.steps.empty()) {
      raise("", "a chain without kernels");
      return false;
    }
    std::vector<const void*> addresses;
    for (const Parameter& parameter : state_.parameters) addresses.push_back(parameter.like.data);
    for (const Step& step : state_.steps) {
      if (!step.lies_apart(addresses)) return false;
    }
    state_.bound = bound_.take();
    state_.kept = kept_.take();
    state_.written = state_.find_written(arrays_);
    return state_.written &&
           call_alone(state_, [&] { return kw_chain_build(builder_, &state_.handle); });
  }

 private:
  static bool expect(int status) {
    if (status != 0) Failure::last().raise("");
    return status == 0;
  }

  /// Takes the stream of the first framework that says one as the chain's.
  void meet(const ArrayView& view) {
    if (!state_.framework.says()) state_.framework = Framework(view);
  }

  bool read_arguments(PyObject* arguments, Step& step, std::vector<kw_chain_arg>& read) {
    const KernelState& kernel = *step.kernel;
    const auto count = static_cast<std::size_t>(PyTuple_Size(arguments));
    if (!count_fits(kernel, count)) return false;
    for (std::size_t i = 0; i < count; ++i) {
      PyObject* given = PyTuple_GetItem(arguments, static_cast<Py_ssize_t>(i));
      kw_chain_arg argument{};
      const bool fine = i >= kernel.tensors         ? read_scalar(given, kernel, i, argument)
                        : PyTuple_Check(given) != 0 ? read_slot(given, kernel, i, step, argument)
                                                    : read_fixed(given, kernel, i, step, argument);
      if (!fine) return false;
      read.push_back(argument);
    }
    return true;
  }

  static bool read_scalar(PyObject* given, const KernelState& kernel, std::size_t i,
                          kw_chain_arg& argument) {
    argument.kind = KW_SCALAR;
    argument.scalar = PyFloat_AsDouble(given);
    if (PyErr_Occurred() == nullptr) return true;
    raise_current(kernel.problem.c_str(), kernel.arguments[i].name.c_str());
    return false;
  }

  bool read_fixed(PyObject* given, const KernelState& kernel, std::size_t i, Step& step,
                  kw_chain_arg& argument) {
    ArrayView view;
    if (!read_array(given, view, kept_)) {
      raise_current(kernel.problem.c_str(), kernel.arguments[i].name.c_str());
      return false;
    }
    const Expected& expected = kernel.arguments[i];
    if (!fits(kernel, expected, view) || !kept_.add(given)) return false;
    if (expected.output && view.is_tensor &&
        PyList_Append(state_.written_always.get(), given) != 0) {
      return false;
    }
    meet(view);
    argument.kind = KW_POINTER;
    argument.pointer = view.data;
    step.places.push_back({.fixed = view.data});
    return true;
  }

  bool read_slot(PyObject* given, const KernelState& kernel, std::size_t i, Step& step,
                 kw_chain_arg& argument) {
    int is_buffer = 0;
    Py_ssize_t index = 0;
    long long offset = 0;
    if (PyArg_ParseTuple(given, "pnL", &is_buffer, &index, &offset) == 0) return false;
    const Expected& expected = kernel.arguments[i];
    const auto known =
        is_buffer != 0 ? buffers_ : static_cast<Py_ssize_t>(state_.parameters.size());
    if (index < 0 || index >= known) {
      raise(kernel.problem.c_str(), "%s is a slot of another builder", expected.name.c_str());
      return false;
    }
    argument.kind = is_buffer != 0 ? KW_BUFFER : KW_PARAMETER;
    argument.slot = static_cast<std::size_t>(index);
    argument.offset_bytes = offset;
    if (is_buffer != 0) {  // kw_chain_build checks that it is large enough
      step.places.push_back({});
      return true;
    }
    step.places.push_back({.parameter = index, .offset = offset});
    Parameter& parameter = state_.parameters[argument.slot];
    parameter.is_written = parameter.is_written || expected.output;
    return parameter_fits(parameter, kernel, expected, offset);
  }

  /// Checks a parameter: it is the tensor itself, or, if it was moved by some bytes, contains it.
  static bool parameter_fits(const Parameter& parameter, const KernelState& kernel,
                             const Expected& expected, long long offset) {
    if (offset == 0) return fits(kernel, expected, parameter.like);
    if (!may_use(kernel, expected, parameter.like)) return false;
    const auto needed = static_cast<long long>(expected.footprint.bytes);
    const auto all = static_cast<long long>(parameter.bytes);
    if (offset > 0 && offset <= all - needed) return true;
    raise(kernel.problem.c_str(),
          "%s has %lld bytes and begins %lld bytes into a parameter of %lld bytes",
          expected.name.c_str(), needed, offset, all);
    return false;
  }

  ChainState& state_;
  kw_chain_builder* builder_ = nullptr;
  Py_ssize_t buffers_ = 0;
  Kept kept_, bound_;
  std::vector<PyObject*> arrays_;  // of the parameters; `bound_` has them
};

PyObject* chain_launch(PyObject* self, PyObject* const* given, Py_ssize_t count, PyObject* names) {
  ChainState& state = ChainObject::of(self);
  return call_on_stream(state, "a chain", given, count, names,
                        [&](void* stream) { return kw_launch_chain(state.handle, stream); });
}

PyObject* chain_call(PyObject* self, PyObject* arguments, PyObject* names) {
  const Ref method(PyObject_GetAttrString(self, "launch"));
  return method ? PyObject_Call(method.get(), arguments, names) : nullptr;
}

PyObject* chain_add_to_capture(PyObject* self, PyObject* const* given, Py_ssize_t count,
                               PyObject* names) {
  ChainState& state = ChainObject::of(self);
  return call_on_stream(state, "add_to_capture()", given, count, names, [&](void* stream) {
    return kw_add_chain_to_capture(state.handle, stream);
  });
}

PyObject* chain_tune(PyObject* self, PyObject* const* given, Py_ssize_t count, PyObject* names) {
  ChainState& state = ChainObject::of(self);
  return call_on_stream(state, "_tune()", given, count, names,
                        [&](void* stream) { return kw_tune_chain(state.handle, stream); });
}

PyObject* chain_set_path(PyObject* self, PyObject* given) {
  const char* path =
      PyUnicode_Check(given) != 0 ? PyUnicode_AsUTF8AndSize(given, nullptr) : nullptr;
  if (path == nullptr) {
    return PyErr_Format(PyExc_TypeError, "a path is %R, and a str expected", Py_TYPE(given));
  }
  ChainState& state = ChainObject::of(self);
  if (!call_alone(state, [&] { return kw_set_chain_path(state.handle, path); })) return nullptr;
  Py_RETURN_NONE;
}

PyObject* chain_rebind(PyObject* self, PyObject* given) {
  ChainState& state = ChainObject::of(self);
  const auto count = static_cast<std::size_t>(PyTuple_Size(given));
  if (count != state.parameters.size()) {
    return raise(state.name.c_str(), "%zu arrays, and %zu expected: one for each parameter", count,
                 state.parameters.size());
  }
  std::vector<const void*> addresses;
  std::vector<PyObject*> arrays;
  Kept kept;
  for (std::size_t i = 0; i < count; ++i) {
    const std::string what = "parameter " + std::to_string(i);
    ArrayView view;
    arrays.push_back(PyTuple_GetItem(given, static_cast<Py_ssize_t>(i)));
    if (!read_array(arrays[i], view, kept) || !kept.add(arrays[i])) {
      return raise_current(state.name.c_str(), what.c_str());
    }
    if (!view.on_gpu() || (view.device.id >= 0 && view.device.id != state.device)) {
      return raise(state.name.c_str(), "%s does not lie on GPU %d, as the chain does", what.c_str(),
                   state.device);
    }
    if (!state.parameters[i].lies_as(view)) {
      return raise(state.name.c_str(),
                   "%s has another dtype, shape or strides than the array that the builder was "
                   "given",
                   what.c_str());
    }
    if (state.parameters[i].is_written && view.read_only) {
      return raise(state.name.c_str(), "%s is read-only, and the chain writes it", what.c_str());
    }
    state.parameters[i].like.is_tensor = view.is_tensor;
    addresses.push_back(view.data);
  }
  for (const Step& step : state.steps) {
    if (!step.lies_apart(addresses)) return nullptr;
  }
  Ref written = state.find_written(arrays);
  if (!written || !call_alone(state, [&] {
        return kw_rebind_chain(state.handle, addresses.data(), addresses.size());
      })) {
    return nullptr;
  }
  state.bound = kept.take();
  state.written = std::move(written);
  Py_RETURN_NONE;
}

PyObject* chain_description(PyObject* self, void*) {
  ChainState& state = ChainObject::of(self);
  if (state.busy) return raise(state.name.c_str(), "another thread uses it");
  return text_from(kw_describe_chain(state.handle));
}

PyMethodDef kChainMethods[] = {
    {"launch", method<chain_launch>(), METH_FASTCALL | METH_KEYWORDS,
     "launch($self, /, stream=None)\n--\n\nDoes the same as calling it."},
    {"rebind", method<chain_rebind>(), METH_VARARGS,
     "rebind($self, /, *parameters)\n--\n\n"
     "Sets other arrays for all parameters, in order, from the next launch on. They must have\n"
     "the dtypes, shapes and strides of the builder's arrays. Up to four sets that come back\n"
     "stay ready. Errors: Error; the parameters then stay as they were."},
    {"add_to_capture", method<chain_add_to_capture>(), METH_FASTCALL | METH_KEYWORDS,
     "add_to_capture($self, /, stream=None)\n--\n\n"
     "Adds the kernels, with the present arrays, to the capture that the stream is in. Release\n"
     "the captured graph before this. Errors: Error if the stream is not in a capture."},
    {"set_path", method<chain_set_path>(), METH_O,
     "set_path($self, path, /)\n--\n\n"
     "Sets the way in which the chain is launched, one of `paths`. Errors: Error for another."},
    {"_tune", method<chain_tune>(), METH_FASTCALL | METH_KEYWORDS,
     "_tune(stream=None)\n\nkw_tune_chain()."},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef kChainGetters[] = {{"_description", Guarded<chain_description>::call, nullptr,
                                "kw_describe_chain()'s JSON text.", nullptr},
                               {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot kChainSlots[] = {
    {Py_tp_doc, const_cast<char*>("Kernels that follow each other, as one object.")},
    {Py_tp_new, reinterpret_cast<void*>(Guarded<ChainObject::refuse_new>::call)},
    {Py_tp_dealloc, reinterpret_cast<void*>(ChainObject::dealloc)},
    {Py_tp_call, reinterpret_cast<void*>(Guarded<chain_call>::call)},
    {Py_tp_methods, kChainMethods},
    {Py_tp_getset, kChainGetters},
    {0, nullptr}};

PyType_Spec kChainSpec = {"kernwright._kernwright.ChainHandle", sizeof(ChainObject), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, kChainSlots};

PyTypeObject* chain_type = nullptr;  // guarded by the GIL

/// Calls `add` on every item of a list, copied first, since reading an item may run code that
/// changes it.
template <typename Add>
bool each(PyObject* list, const Add& add) {
  const Ref items(PyList_AsTuple(list));
  if (!items) return false;
  for (Py_ssize_t i = 0; i < PyTuple_Size(items.get()); ++i) {
    if (!add(PyTuple_GetItem(items.get(), i))) return false;
  }
  return true;
}

}  // namespace

bool add_chain_type(PyObject* module) {
  chain_type = add_type(module, kChainSpec, "ChainHandle");
  return chain_type != nullptr;
}

PyObject* build_chain(PyObject*, PyObject* given) {
  PyObject *type = nullptr, *parameters = nullptr, *buffers = nullptr, *steps = nullptr;
  if (PyArg_ParseTuple(given, "OO!O!O!", &type, &PyList_Type, &parameters, &PyList_Type, &buffers,
                       &PyList_Type, &steps) == 0) {
    return nullptr;
  }
  auto state = std::make_unique<ChainState>();
  Builder builder(*state);
  if (!builder.begin() ||
      !each(parameters, [&](PyObject* item) { return builder.add_parameter(item); }) ||
      !each(buffers, [&](PyObject* item) { return builder.add_buffer(item); }) ||
      !each(steps, [&](PyObject* item) { return builder.add_step(item); }) || !builder.build()) {
    return nullptr;
  }
  return ChainObject::make(type, chain_type, std::move(state));
}

}  // namespace kernwright::python
