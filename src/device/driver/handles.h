#pragma once

#include <utility>

#include "device/driver/driver.h"
#include "support/processes/process_exit.h"

namespace kernwright {

/// A scope of driver calls that users did not ask for: calls which load, allocate, measure and
/// free. The calling thread may make them while a stream is in a capture, this thread's or
/// another's, without making that capture invalid. False if the driver may be gone: while the
/// process exits, and in one that was forked. It is not called then, and keeps what it has.
class OutsideOfCaptures {
 public:
  explicit OutsideOfCaptures(const DriverApi& api)
      : api_(before_exit_ && !driver_left_behind() ? &api : nullptr) {
    if (api_ != nullptr) api_->exchange_capture_mode(&mode_);
  }
  OutsideOfCaptures(const OutsideOfCaptures&) = delete;
  OutsideOfCaptures& operator=(const OutsideOfCaptures&) = delete;
  ~OutsideOfCaptures() {
    if (api_ != nullptr) api_->exchange_capture_mode(&mode_);
  }

  explicit operator bool() const { return api_ != nullptr; }

 private:
  BeforeExit before_exit_{BeforeExit::Late::ends};
  const DriverApi* api_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;  ///< then the thread's own
};

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
    const DriverApi* api = std::exchange(api_, nullptr);
    if (api == nullptr) return;
    const OutsideOfCaptures frees(*api);
    if (frees) (api->*Destroy)(value_);
  }

  /// Releases the object without destroying it. Destroying it would wait for ever if a kernel never
  /// ends.
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

/// Makes a context current for a scope, outside of captures, and restores the caller's. Fails with
/// CUDA_ERROR_DEINITIALIZED if the driver may be gone.
class ContextScope {
 public:
  ContextScope(const DriverApi& api, CUcontext context)
      : api_(api),
        outside_(api),
        status_{"cuCtxPushCurrent",
                outside_ ? api.context_push_current(context) : CUDA_ERROR_DEINITIALIZED} {}
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
  ~ContextScope() {
    CUcontext popped = nullptr;
    if (status_) api_.context_pop_current(&popped);
  }

  const DriverStatus& status() const { return status_; }

 private:
  const DriverApi& api_;
  OutsideOfCaptures outside_;
  DriverStatus status_;
};

}  // namespace kernwright
