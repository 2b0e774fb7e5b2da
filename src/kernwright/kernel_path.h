#pragma once

#include <string_view>

#include <kernwright/export.h>

namespace kernwright {

/// How a kernel is launched. The spelling of an enumerator is its spelling on disk and in the CLI.
enum class KernelPath {
  stream,  ///< `Kernel::launch`
  graph,   ///< `BakedLaunch::launch`, one baked launch per set of arguments
  rebind   ///< `BakedLaunch::rebind` and `launch`, with sets of arguments that come back
};

KERNWRIGHT_API std::string_view to_string(KernelPath path);

}  // namespace kernwright
