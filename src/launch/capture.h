#pragma once

#include <string_view>

#include "device/program/launch_graph.h"
#include <kernwright/result.h>

namespace kernwright {

/// Returns the error of a failed launch of `what`, with the driver's message and, if the stream is
/// being captured, the call to use instead.
Error launch_error(const DriverApi& api, const DriverStatus& status, std::string_view what);

/// Adds the graph's work to the capture of `stream`. Errors: `invalid_argument` if the stream is
/// not being captured, or the capture is no longer valid; `device`.
Result<void> capture(const DriverApi& api, const LaunchGraph& graph, void* stream,
                     std::string_view what);

}  // namespace kernwright
