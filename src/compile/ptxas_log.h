#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compile/compile_request.h"

namespace kernwright {

/// What ptxas says with `-v`, through NVRTC and through nvJitLink alike.
struct PtxasReport {
  std::vector<KernelEntry> entries;
  /// What says that speed is lost, each once: wgmma that waits for itself, functions called.
  std::vector<std::string> warnings;
};

/// Reads the resources of every kernel entry from `log`. Spills of functions that were not inlined
/// count for every entry, since the log does not say who calls them.
PtxasReport parse_ptxas_log(std::string_view log);

}  // namespace kernwright
