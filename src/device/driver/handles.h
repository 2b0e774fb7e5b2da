#pragma once

#include <utility>

#include "device/driver/driver.h"

namespace kernwright {

/// Owns one driver object and destroys it by `Destroy`, a member of `DriverApi`.
template <typename T, auto Destroy>
class DriverHandle {
 public:
  DriverHandle() = default;
  DriverHandle(const DriverApi& api, T value) : api_(&api), value_(value) {}
  DriverHandle(DriverHandle&& other) noexcept
      : api_(std::exchange(other.api_, nullptr)), value_(other.value_) {}
  DriverHandle& operator=(DriverHandle&& other) noexcept {
    if (this != &other) {
      reset();
      api_ = std::exchange(other.api_, nullptr);
      value_ = other.value_;
    }
    return *this;
  }
  ~DriverHandle() { reset(); }

  T get() const { return value_; }

  void reset() {
    if (const DriverApi* api = std::exchange(api_, nullptr)) (api->*Destroy)(value_);
  }

  /// Gives the object up without destroying it. After a kernel that never ends, destroying it would
  /// wait for ever.
  void abandon() { api_ = nullptr; }

 private:
  const DriverApi* api_ = nullptr;
  T value_{};
};

using MemoryHandle = DriverHandle<CUdeviceptr, &DriverApi::mem_free>;
using HostMemoryHandle = DriverHandle<void*, &DriverApi::mem_free_host>;
using MemoryPoolHandle = DriverHandle<CUmemoryPool, &DriverApi::mem_pool_destroy>;
using StreamHandle = DriverHandle<CUstream, &DriverApi::stream_destroy>;
using EventHandle = DriverHandle<CUevent, &DriverApi::event_destroy>;
using LibraryHandle = DriverHandle<CUlibrary, &DriverApi::library_unload>;
using GraphHandle = DriverHandle<CUgraph, &DriverApi::graph_destroy>;
using GraphExecHandle = DriverHandle<CUgraphExec, &DriverApi::graph_exec_destroy>;
using PrimaryContextHandle = DriverHandle<CUdevice, &DriverApi::primary_context_release>;

/// Makes a context current for a scope and restores the caller's.
class ContextScope {
 public:
  ContextScope(const DriverApi& api, CUcontext context)
      : api_(api), status_{"cuCtxPushCurrent", api.context_push_current(context)} {}
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
  ~ContextScope() {
    CUcontext popped = nullptr;
    if (status_) api_.context_pop_current(&popped);
  }

  const DriverStatus& status() const { return status_; }

 private:
  const DriverApi& api_;
  DriverStatus status_;
};

/// Lets the calling thread load and allocate for a scope while a stream is in a capture, this
/// thread's or another's, without making that capture invalid.
class OutsideOfCaptures {
 public:
  explicit OutsideOfCaptures(const DriverApi& api) : api_(api) {
    api_.exchange_capture_mode(&mode_);
  }
  OutsideOfCaptures(const OutsideOfCaptures&) = delete;
  OutsideOfCaptures& operator=(const OutsideOfCaptures&) = delete;
  ~OutsideOfCaptures() { api_.exchange_capture_mode(&mode_); }

 private:
  const DriverApi& api_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;  ///< then the thread's own
};

}  // namespace kernwright
