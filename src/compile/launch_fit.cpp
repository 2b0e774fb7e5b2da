#include "compile/launch_fit.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "compile/cubin.h"
#include "support/text.h"

namespace kernwright {
namespace {

/// Bytes of a compiler's log that a trial keeps.
constexpr std::size_t kMaxDetail = 2000;

Outcome outcome_of(ErrorCode code) {
  return code == ErrorCode::timed_out ? Outcome::timed_out : Outcome::compile_failed;
}

/// Returns the compiler's warnings about lost speed.
std::string warnings_of(const CompiledKernel& kernel) {
  std::string text;
  for (const std::string& warning : kernel.warnings) {
    text += concat(text.empty() ? "" : "; ", warning);
  }
  return text.substr(0, kMaxDetail);
}

/// Returns the harm that a function of the problem does to the code around it, which it must not
/// do; empty if there is none. Spills are judged as everybody's.
std::string harm_of_function(const CompiledKernel& kernel) {
  if (!kernel.warnings.empty()) return warnings_of(kernel);
  for (const auto& [name, resources] : kernel.entries) {
    if (resources.stack_bytes > 0 && resources.spill_bytes() == 0) {
      return concat(resources.stack_bytes, " bytes of each thread's values lie in memory");
    }
  }
  return {};
}

}  // namespace

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

TrialStep check_compiled(const Candidate& candidate, const CompileResult& compiled,
                         const DeviceProfile& profile) {
  if (!compiled) {
    return {outcome_of(compiled.error().code), compiled.error().message.substr(0, kMaxDetail)};
  }
  const CompiledKernel& kernel = *compiled.value();
  if (candidate.problem && candidate.problem->takes_function()) {
    if (const std::string harm = harm_of_function(kernel); !harm.empty()) {
      return {Outcome::compile_failed, concat("with the problem's function, ", harm)};
    }
  }
  const Resources resources = kernel.resources();
  const std::int64_t allowed = candidate.kernel_template->allowed_spill_bytes;
  if (resources.spill_bytes() > std::min(allowed, kMostSpillBytes)) {
    const bool by_manifest = allowed <= kMostSpillBytes;
    return {Outcome::spilled,
            concat("spills ", resources.spill_bytes(), " bytes, ",
                   by_manifest ? "the manifest allows " : "more than the limit of ",
                   by_manifest ? allowed : kMostSpillBytes)};
  }
  if (std::optional<Misfit> misfit = find_misfit(candidate.plan, kernel)) {
    return {Outcome::launch_failed, std::move(misfit->what)};
  }
  for (const LaunchPlan& launch : candidate.plan.launches) {
    const auto entry = std::find_if(kernel.entries.begin(), kernel.entries.end(),
                                    [&](const KernelEntry& e) { return e.name == launch.kernel; });
    if (entry == kernel.entries.end()) continue;
    const std::int64_t smem =
        std::int64_t{entry->resources.static_smem_bytes} + launch.dynamic_smem;
    if (smem > profile.smem_per_block_optin) {
      return {Outcome::launch_failed,
              concat(launch.kernel, " needs ", smem, " bytes of shared memory, a block has ",
                     profile.smem_per_block_optin)};
    }
    // Registers are handed out in units of 8 per thread, to whole warps.
    const std::int64_t threads = std::int64_t{launch.block[0]} * launch.block[1] * launch.block[2];
    const std::int64_t registers =
        (std::int64_t{entry->resources.registers} + 7) / 8 * 8 * ((threads + 31) / 32 * 32);
    if (registers > profile.registers_per_sm) {
      return {Outcome::launch_failed,
              concat(launch.kernel, " needs ", registers, " registers per block, an SM has ",
                     profile.registers_per_sm)};
    }
  }
  return {Outcome::ok, warnings_of(kernel)};
}

}  // namespace kernwright
