#pragma once

#include <cstdint>
#include <utility>

#include "device/device.h"
#include "device/driver/handles.h"
#include <kernwright/result.h>

namespace kernwright {

/// Device memory of the context that was current when it was allocated. It is freed with that
/// context current, which waits for all work on the device. Move-only.
class ContextMemory {
 public:
  ContextMemory() = default;
  /// Allocates memory; for 0 bytes none, at address 0. Errors: `invalid_argument` if the calling
  /// thread has no current context; `device`.
  static Result<ContextMemory> allocate(const DriverApi& api, std::int64_t bytes);
  ContextMemory(ContextMemory&& other) noexcept
      : api_(std::exchange(other.api_, nullptr)),
        context_(other.context_),
        memory_(std::move(other.memory_)) {}
  ContextMemory& operator=(ContextMemory&& other) noexcept {
    std::swap(api_, other.api_);
    std::swap(context_, other.context_);
    std::swap(memory_, other.memory_);
    return *this;
  }
  ~ContextMemory();

  DevicePointer address() const { return memory_.get(); }

 private:
  ContextMemory(const DriverApi& api, CUcontext context, MemoryHandle memory)
      : api_(&api), context_(context), memory_(std::move(memory)) {}

  const DriverApi* api_ = nullptr;
  CUcontext context_ = nullptr;
  MemoryHandle memory_;
};

/// Returns the current context of the calling thread. Errors: `invalid_argument` if it has none;
/// `device`.
Result<CUcontext> current_context(const DriverApi& api);

}  // namespace kernwright
