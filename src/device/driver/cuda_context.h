#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "device/driver/driver.h"
#include "device/driver/handles.h"
#include "model/result/measurement.h"
#include <kernwright/result.h>

namespace kernwright {

/// The primary context of one GPU with a stream of its own. A context may be lost, by an
/// error that poisons it or a kernel that does not end. It then stays lost, and nothing in it is
/// freed, because that would fail or wait for ever. Used by one thread at a time.
class CudaContext {
 public:
  /// Opens GPU `ordinal`. Errors: `unavailable` if the GPU does not exist; `device`.
  static Result<std::shared_ptr<CudaContext>> open(const DriverApi& api, int ordinal,
                                                   std::chrono::milliseconds deadline);
  ~CudaContext();

  const DriverApi& api() const { return api_; }
  CUdevice device() const { return device_; }
  CUcontext context() const { return context_; }
  CUstream stream() const { return stream_.get(); }
  /// Returns a second stream, which is made on first use. The context must be current.
  Result<CUstream> side_stream();

  /// Fails if the context is lost. That counts as a failed call.
  Result<void> usable();

  /// Turns the status of a driver call into a result, and remembers what a failure means.
  Result<void> check(const DriverStatus& status);

  /// Remembers an outcome that does not come from a driver call, and returns the error.
  Error fail(Outcome outcome, Error error);

  /// Waits until both streams are empty. At the deadline the context is lost, and the outcome is
  /// `timed_out`.
  Result<void> wait();

  bool lost() const { return lost_; }
  Outcome last_failure() const { return last_failure_; }

 private:
  CudaContext(const DriverApi& api, CUdevice device, std::chrono::milliseconds deadline)
      : api_(api), device_(device), deadline_(deadline) {}

  const DriverApi& api_;
  CUdevice device_;
  std::chrono::milliseconds deadline_;
  CUcontext context_ = nullptr;
  StreamHandle stream_;
  StreamHandle side_stream_;
  bool lost_ = false;
  std::string lost_reason_;
  Outcome last_failure_ = Outcome::ok;
};

/// Owns a driver object of a context, and keeps the context alive. It destroys the object with the
/// context current, and abandons it if the context is lost.
template <typename Handle>
class ContextOwned {
 public:
  ContextOwned(std::shared_ptr<CudaContext> context, Handle handle)
      : context_(std::move(context)), handle_(std::move(handle)) {}
  ContextOwned(ContextOwned&&) noexcept = default;
  ContextOwned& operator=(ContextOwned&&) = delete;
  ~ContextOwned() {
    if (!context_) return;
    if (context_->lost()) {
      handle_.abandon();
    } else {
      const ContextScope scope(context_->api(), context_->context());
      handle_.reset();
    }
  }

  const Handle& handle() const { return handle_; }
  CudaContext& context() const { return *context_; }

 private:
  std::shared_ptr<CudaContext> context_;
  Handle handle_;
};

}  // namespace kernwright
