#include "bench/boundaries/experiments.h"

#include "support/text.h"

namespace kernwright::boundaries {
namespace {

constexpr Experiment kExperiments[] = {
    {"steps", "what a step costs by how it follows the one before", run_steps},
    {"barrier", "what crossing costs alone and while a ring streams", run_barrier},
    {"period", "what a kernel costs that is empty or passes 2 KB on", run_period},
    {"cascade", "how kernels that start early lie on the multiprocessors", run_cascade},
    {"stream", "how fast a persistent kernel reads weights", run_stream},
    {"early", "what weights gain that are asked for before the wait", run_early},
    {"consume", "how fast a multiprocessor consumes weights from its shared memory", run_consume},
};

}  // namespace

std::span<const Experiment> experiments() { return kExperiments; }

Result<std::span<const Experiment>> choose_experiments(std::string_view name) {
  if (name.empty()) return experiments();
  std::string names;
  for (const Experiment& experiment : kExperiments) {
    if (experiment.name == name) return std::span(&experiment, 1);
    names += concat(names.empty() ? "" : ", ", experiment.name);
  }
  return Error{ErrorCode::invalid_argument, concat("no experiment ", name, "; there are ", names)};
}

}  // namespace kernwright::boundaries
