#include "python/extension/call_arguments.h"
#include "python/extension/graph_handle.h"
#include "python/extension/graph_objects.h"
#include "python/extension/kernel_object.h"

namespace kernwright::python {
namespace {

struct BakedState : GraphState {
  kw_baked* handle = nullptr;
  const KernelState* kernel = nullptr;  ///< one of `kept`; says what rebinds take

  BakedState() = default;
  BakedState(const BakedState&) = delete;
  BakedState& operator=(const BakedState&) = delete;
  ~BakedState() {
    if (handle == nullptr) return;
    const WithoutGil released;  // it may wait for the GPU
    kw_release_baked(handle);
  }
};
using BakedObject = GraphObject<BakedState>;

PyObject* baked_launch(PyObject* self, PyObject* const* given, Py_ssize_t count, PyObject* names) {
  BakedState& state = BakedObject::of(self);
  return call_on_stream(state, "a baked launch", given, count, names,
                        [&](void* stream) { return kw_launch_baked(state.handle, stream); });
}

PyObject* baked_call(PyObject* self, PyObject* arguments, PyObject* names) {
  const Ref method(PyObject_GetAttrString(self, "launch"));
  return method ? PyObject_Call(method.get(), arguments, names) : nullptr;
}

PyObject* baked_add_to_capture(PyObject* self, PyObject* const* given, Py_ssize_t count,
                               PyObject* names) {
  BakedState& state = BakedObject::of(self);
  return call_on_stream(state, "add_to_capture()", given, count, names,
                        [&](void* stream) { return kw_add_to_capture(state.handle, stream); });
}

/// The arrays that the launches of a call with these arguments keep, and the tensors that they
/// write.
struct Bound {
  Ref arrays, written;

  /// Returns false with a Python error set.
  bool take(const KernelState& kernel, CallArguments& arguments) {
    for (std::size_t i = 0; i < kernel.tensors; ++i) {
      if (!arguments.kept.add(arguments.tensors[i].array)) return false;
    }
    arrays = arguments.kept.take();
    written = written_tensors(kernel, arguments.tensors);
    return PyErr_Occurred() == nullptr;
  }
};

PyObject* baked_rebind(PyObject* self, PyObject* const* given, Py_ssize_t count) {
  BakedState& state = BakedObject::of(self);
  const KernelState& kernel = *state.kernel;
  CallArguments arguments;
  const void* addresses[kMostArguments];
  Bound bound;
  if (!arguments.read(kernel, given, static_cast<std::size_t>(count)) ||
      !check_tensors(kernel, arguments.tensors, addresses) || !bound.take(kernel, arguments) ||
      !call_alone(state, [&] {
        return kw_rebind(state.handle, addresses, kernel.tensors, arguments.scalars,
                         arguments.scalar_count);
      })) {
    return nullptr;
  }
  state.bound = std::move(bound.arrays);
  state.written = std::move(bound.written);
  Py_RETURN_NONE;
}

PyMethodDef kBakedMethods[] = {
    {"launch", method<baked_launch>(), METH_FASTCALL | METH_KEYWORDS,
     "launch($self, /, stream=None)\n--\n\nDoes the same as calling it."},
    {"rebind", method<baked_rebind>(), METH_FASTCALL,
     "rebind($self, /, *tensors_and_scalars)\n--\n\n"
     "Sets other arguments for the launches from now on. Launches that are enqueued already\n"
     "keep theirs. Up to four sets that come back stay ready, so alternating between them\n"
     "costs no driver call. Errors: as for a call of the kernel; the arguments then stay as\n"
     "they were."},
    {"add_to_capture", method<baked_add_to_capture>(), METH_FASTCALL | METH_KEYWORDS,
     "add_to_capture($self, /, stream=None)\n--\n\n"
     "Adds the launch, with its present arguments, to the capture that the stream is in.\n"
     "Release the captured graph before this. Errors: Error if the stream is not in a capture."},
    {nullptr, nullptr, 0, nullptr}};

PyType_Slot kBakedSlots[] = {
    {Py_tp_doc, const_cast<char*>("A kernel with its arguments as a CUDA graph.")},
    {Py_tp_new, reinterpret_cast<void*>(Guarded<BakedObject::refuse_new>::call)},
    {Py_tp_dealloc, reinterpret_cast<void*>(BakedObject::dealloc)},
    {Py_tp_call, reinterpret_cast<void*>(Guarded<baked_call>::call)},
    {Py_tp_methods, kBakedMethods},
    {0, nullptr}};

PyType_Spec kBakedSpec = {"kernwright._kernwright.BakedHandle", sizeof(BakedObject), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, kBakedSlots};

PyTypeObject* baked_type = nullptr;  // guarded by the GIL

}  // namespace

bool add_baked_type(PyObject* module) {
  baked_type = add_type(module, kBakedSpec, "BakedHandle");
  return baked_type != nullptr;
}

PyObject* bake(PyObject*, PyObject* const* given, Py_ssize_t count) {
  const KernelState* kernel = count < 2 ? nullptr : kernel_of(given[1]);
  if (kernel == nullptr) {
    return PyErr_Format(PyExc_TypeError, "bake() takes a type, a kernel and its arguments");
  }
  CallArguments arguments;
  const void* addresses[kMostArguments];
  Bound bound;
  if (!arguments.read(*kernel, given + 2, static_cast<std::size_t>(count) - 2) ||
      !check_tensors(*kernel, arguments.tensors, addresses) || !bound.take(*kernel, arguments)) {
    return nullptr;
  }
  auto state = std::make_unique<BakedState>();
  state->name = kernel->problem;
  state->device = kernel->device;
  state->kernel = kernel;
  state->framework = framework_of(*kernel, arguments.tensors);
  state->kept = Ref::to(given[1]);
  state->bound = std::move(bound.arrays);
  state->written = std::move(bound.written);
  if (!call_alone(*state, [&] {
        return kw_bake(kernel->handle, addresses, kernel->tensors, arguments.scalars,
                       arguments.scalar_count, &state->handle);
      })) {
    return nullptr;
  }
  return BakedObject::make(given[0], baked_type, std::move(state));
}

}  // namespace kernwright::python
