#include "device/driver/cuda_context.h"

#include <thread>

#include "support/text.h"
#include "support/try.h"

namespace kernwright {

Result<std::shared_ptr<CudaContext>> CudaContext::open(const DriverApi& api, int ordinal,
                                                       std::chrono::milliseconds deadline) {
  CUdevice device = 0;
  if (const DriverStatus status{"cuDeviceGet", api.device_get(&device, ordinal)}; !status) {
    return Error{ErrorCode::unavailable,
                 concat("GPU ", ordinal, ": ", driver_error(api, status).message)};
  }
  const std::shared_ptr<CudaContext> opened(new CudaContext(api, device, deadline));
  KW_ASSIGN(opened->context_, primary_context(api, device));

  const ContextScope scope(api, opened->context_);
  if (!scope.status()) return driver_error(api, scope.status());
  CUstream stream = nullptr;
  const DriverStatus status{"cuStreamCreate", api.stream_create(&stream, CU_STREAM_NON_BLOCKING)};
  if (!status) return driver_error(api, status);
  opened->stream_ = StreamHandle(api, stream);
  // Called again, because the driver registers exit handlers of its own once it has a context.
  [[maybe_unused]] static const bool heeded = heed_exit();
  return opened;
}

CudaContext::~CudaContext() {
  if (lost_) {
    stream_.abandon();
    side_stream_.abandon();
  } else if (context_) {
    const ContextScope scope(api_, context_);
    side_stream_.reset();
    stream_.reset();
  }
}

Result<CUstream> CudaContext::side_stream() {
  if (side_stream_.get() == nullptr) {
    CUstream stream = nullptr;
    KW_TRY(check({"cuStreamCreate", api_.stream_create(&stream, CU_STREAM_NON_BLOCKING)}));
    side_stream_ = StreamHandle(api_, stream);
  }
  return side_stream_.get();
}

Result<void> CudaContext::usable() {
  if (!lost_) return {};
  last_failure_ = Outcome::device_lost;
  return Error{ErrorCode::device, "the device was lost earlier: " + lost_reason_};
}

Result<void> CudaContext::check(const DriverStatus& status) {
  if (status) return {};
  Error error = driver_error(api_, status);
  if (poisons_context(status.result)) {
    lost_ = true;
    lost_reason_ = error.message;
  }
  return fail(outcome_of(status.result), std::move(error));
}

Error CudaContext::fail(Outcome outcome, Error error) {
  last_failure_ = outcome;
  return error;
}

Result<void> CudaContext::wait() {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  for (;;) {
    DriverStatus status{"cuStreamQuery", api_.stream_query(stream_.get())};
    if (status && side_stream_.get() != nullptr) {
      status.result = api_.stream_query(side_stream_.get());
    }
    if (status.result != CUDA_ERROR_NOT_READY) return check(status);
    const Clock::duration waited = Clock::now() - start;
    if (exiting()) {
      lost_ = true;
      lost_reason_ = "the process exits";
      return fail(Outcome::device_lost, {ErrorCode::unavailable, lost_reason_});
    }
    if (waited > deadline_) {
      lost_ = true;
      lost_reason_ = concat("the GPU did not finish within ", deadline_.count(), " ms");
      return fail(Outcome::timed_out, {ErrorCode::timed_out, lost_reason_});
    }
    // Most waits end within the length of a sample. Longer ones leave the core to the compilers.
    if (waited < std::chrono::milliseconds(5)) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
}

}  // namespace kernwright
