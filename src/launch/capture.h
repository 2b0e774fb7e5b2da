#pragma once

#include <string_view>

#include "device/program/launch_graph.h"
#include <kernwright/result.h>

namespace kernwright {

/// The driver's words for a failed launch of `what`, with the way out where the stream is being
/// captured.
Error launch_error(const DriverApi& api, const DriverStatus& status, std::string_view what);

/// Adds the graph's work to the capture that `stream` is in. Errors: `invalid_argument` where it is
/// in none, or in one that is no longer valid; `device`.
Result<void> capture(const DriverApi& api, const LaunchGraph& graph, void* stream,
                     std::string_view what);

}  // namespace kernwright
