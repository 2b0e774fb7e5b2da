#include "compile/launch_fit.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "compile/cubin.h"
#include "support/text.h"

namespace kernwright {

std::optional<Misfit> find_misfit(const ExecutionPlan& plan, const CompiledKernel& kernel) {
  if (!kernel.bits.starts_with("\x7f"
                               "ELF"))
    return std::nullopt;
  const Result<std::vector<KernelInterface>> kernels = kernel_interfaces(kernel.bits);
  for (const LaunchPlan& launch : plan.launches) {
    if (!kernels) return Misfit{&launch, kernels.error().message};
    const auto found = std::ranges::find(*kernels, launch.kernel, &KernelInterface::kernel);
    if (found == kernels->end()) {
      std::string known;
      for (const KernelEntry& entry : kernel.entries) {
        known += concat(known.empty() ? "" : ", ", entry.name);
      }
      return Misfit{&launch, concat("no kernel \"", launch.kernel, "\", there are: ", known,
                                    " (extern \"C\" keeps a name as it is written)")};
    }
    if (const Result<void> fits = check_parameters(plan, launch, found->parameter_bytes); !fits) {
      return Misfit{&launch, fits.error().message};
    }
    const std::int64_t threads = std::int64_t{launch.block[0]} * launch.block[1] * launch.block[2];
    if (found->max_threads > 0 && threads > found->max_threads) {
      return Misfit{&launch,
                    concat("kernel ", launch.kernel, ": ", threads, " threads per block > ",
                           found->max_threads, " that its launch bounds allow")};
    }
  }
  return std::nullopt;
}

}  // namespace kernwright
