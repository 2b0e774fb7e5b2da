#include "launch/capture.h"

#include "support/text.h"

namespace kernwright {

Error launch_error(const DriverApi& api, const DriverStatus& status, std::string_view what) {
  const Error error = driver_error(api, status);
  const bool capturing = status.result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED ||
                         status.result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  return {error.code,
          concat(what, ": ", error.message,
                 capturing ? "; a stream that is being captured takes add_to_capture" : "")};
}

Result<void> capture(const DriverApi& api, const LaunchGraph& graph, void* stream,
                     std::string_view what) {
  const auto handle = static_cast<CUstream>(stream);
  CUstreamCaptureStatus state = CU_STREAM_CAPTURE_STATUS_NONE;
  DriverStatus status{"cuStreamIsCapturing", api.stream_is_capturing(handle, &state)};
  if (!status) return launch_error(api, status, what);
  if (state != CU_STREAM_CAPTURE_STATUS_ACTIVE) {
    return Error{ErrorCode::invalid_argument,
                 concat(what, ": the stream is ",
                        state == CU_STREAM_CAPTURE_STATUS_NONE
                            ? "not being captured"
                            : "in a capture that an earlier call made invalid")};
  }
  status = graph.enqueue(handle);
  if (!status) return launch_error(api, status, what);
  return {};
}

}  // namespace kernwright
