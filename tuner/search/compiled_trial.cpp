#include "tuner/search/compiled_trial.h"

#include <algorithm>
#include <utility>

#include "compile/launch_fit.h"

namespace kernwright {

Trial make_trial(const Candidate& candidate, double predicted_us) {
  Trial trial;
  trial.choice = candidate.choice();
  trial.predicted_us = predicted_us;
  return trial;
}

Trial compiled_trial(const Candidate& candidate, double predicted_us, const CompileResult& compiled,
                     const DeviceProfile& profile) {
  Trial trial = make_trial(candidate, predicted_us);
  Runner::Step step = check_compiled(candidate, compiled, profile);
  trial.outcome = step.outcome;
  trial.detail = std::move(step.detail);
  if (compiled) {
    trial.resources = (*compiled)->resources();
    trial.compile_seconds = (*compiled)->seconds;
  }
  return trial;
}

Traits traits_of(const Candidate& candidate, const CompiledKernel& kernel) {
  std::int64_t dynamic_smem = 0;
  for (const LaunchPlan& launch : candidate.plan.launches) {
    dynamic_smem = std::max(dynamic_smem, std::int64_t{launch.dynamic_smem});
  }
  Traits traits;
  traits.warned = !kernel.warnings.empty();
  traits.workspace_bytes = candidate.plan.workspace_bytes();
  traits.resources = kernel.resources();
  traits.smem_bytes = traits.resources.static_smem_bytes + dynamic_smem;
  return traits;
}

}  // namespace kernwright
