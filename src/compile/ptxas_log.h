#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compile/compile_request.h"

namespace kernwright {

/// The contents of ptxas's log with `-v`, which NVRTC and nvJitLink return in the same form.
struct PtxasReport {
  std::vector<KernelEntry> entries;
  /// Warnings of lost speed, each once: serialised wgmma, functions that are called.
  std::vector<std::string> warnings;
};

/// Reads the resources of every kernel entry from `log`. Spills of functions that were not inlined
/// count for every entry, because the log does not say which entries call them.
PtxasReport parse_ptxas_log(std::string_view log);

/// Returns the text of a log as NVRTC and nvJitLink return it: parts that each end with a zero. The
/// last parts may be empty. ptxas' errors are a part behind its infos.
std::string joined_log(std::string parts);

/// Returns the log of a failed compile without ptxas' infos, which differ from one compile to the
/// next. Returns all of it if there is nothing else.
std::string without_infos(std::string_view log);

}  // namespace kernwright
