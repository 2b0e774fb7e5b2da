#include "python/extension/arrays/driver_context.h"

#include <cstdint>
#include <dlfcn.h>
#include <type_traits>

namespace kernwright::python {
namespace {

constexpr int kMostDevices = 64;

/// The driver's functions that are needed here. It is loaded when it is first asked for.
struct Driver {
  int (*init)(unsigned) = nullptr;
  int (*get_device)(int*) = nullptr;
  int (*get_current)(void**) = nullptr;
  int (*push)(void*) = nullptr;
  int (*pop)(void**) = nullptr;
  int (*retain)(void**, int) = nullptr;
  int (*attribute)(void*, int, std::uint64_t) = nullptr;
  bool complete = false;

  Driver() {
    void* library = ::dlopen("libcuda.so.1", RTLD_LAZY);
    if (library == nullptr) return;
    const auto find = [library](auto& function, const char* name) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
      return function != nullptr;
    };
    complete = find(init, "cuInit") && find(get_device, "cuCtxGetDevice") &&
               find(get_current, "cuCtxGetCurrent") && find(push, "cuCtxPushCurrent_v2") &&
               find(pop, "cuCtxPopCurrent_v2") && find(retain, "cuDevicePrimaryCtxRetain") &&
               find(attribute, "cuPointerGetAttribute") && init(0) == 0;
  }
};

const Driver& driver() {
  static const Driver loaded;
  return loaded;
}

void* kept_contexts[kMostDevices] = {};  // guarded by the GIL

/// Returns the primary context of a GPU, which this process then keeps, as every framework does.
void* primary_context(int device) {
  if (device < 0 || device >= kMostDevices) return nullptr;
  if (kept_contexts[device] == nullptr) driver().retain(&kept_contexts[device], device);
  return kept_contexts[device];
}

/// Returns true if the kept primary context is the calling thread's. Asking for the context costs
/// the driver less than asking for its GPU.
bool has_kept_context(int device) {
  if (device < 0 || device >= kMostDevices || kept_contexts[device] == nullptr) return false;
  void* current = nullptr;
  return driver().get_current(&current) == 0 && current == kept_contexts[device];
}

}  // namespace

int current_device() {
  int device = -1;
  if (!driver().complete || driver().get_device(&device) != 0) return -1;
  return device;
}

int device_of(const void* address) {
  constexpr int kDeviceOrdinal = 9;  // CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
  int device = -1;
  const auto pointer = reinterpret_cast<std::uintptr_t>(address);
  if (!driver().complete || driver().attribute(&device, kDeviceOrdinal, pointer) != 0) return -1;
  return device;
}

ContextScope::ContextScope(int device) {
  if (!driver().complete) {
    failure_ = "there is no CUDA driver";
    return;
  }
  if (has_kept_context(device)) return;
  void* context = primary_context(device);
  if (current_device() == device) return;
  pushed_ = context != nullptr && driver().push(context) == 0;
  if (!pushed_) failure_ = "the GPU's context cannot be made current";
}

ContextScope::~ContextScope() {
  void* popped = nullptr;
  if (pushed_) driver().pop(&popped);
}

}  // namespace kernwright::python
