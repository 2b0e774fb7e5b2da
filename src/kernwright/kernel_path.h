#pragma once

#include <string_view>

#include <kernwright/export.h>

namespace kernwright {

/// The ways to launch a kernel. An enumerator is spelled on disk and in the CLI as it is here.
enum class KernelPath {
  stream,  ///< `Kernel::launch`
  graph,   ///< `BakedLaunch::launch`, one baked launch per set of arguments
  rebind   ///< `BakedLaunch::rebind`, then `launch`, with sets of arguments that come back
};

KERNWRIGHT_API std::string_view to_string(KernelPath path);

}  // namespace kernwright
