#include "bench/common/finals_world.h"

#include "compile/compiler.h"
#include "compile/render.h"
#include "device/cuda/cuda_device.h"
#include "support/text.h"
#include "tuner/candidates/candidate_list.h"
#include "tuner/measure/device_runner.h"
#include "tuner/session/tuning_session.h"

namespace kernwright {

Result<FinalsWorld> FinalsWorld::open() {
  FinalsWorld world;
  auto device = open_cuda_device(0);
  if (!device) return device.error();
  world.device = std::move(device).value();
  world.pool = std::make_unique<CompilePool>(make_toolkit_compiler(), CompilePoolOptions{});
  auto catalog = Catalog::load({});
  if (!catalog) return catalog.error();
  world.catalog = std::move(catalog).value();
  auto ops = make_device_data_ops(*world.device, *world.pool);
  if (!ops) return ops.error();
  world.data_ops = std::move(ops).value();
  return world;
}

Result<FinalsProblem> FinalsProblem::open(FinalsWorld& world, const std::string& text,
                                          double sample_ms) {
  auto problem = Problem::parse(text);
  if (!problem) return problem.error();
  auto bound = world.catalog->bind(*problem);
  if (!bound) return bound.error();
  auto list = enumerate_candidates(*world.catalog, *bound, world.device->profile());
  if (!list) return list.error();
  DeviceRunnerOptions options;
  options.sample_ms = sample_ms;
  auto runner = open_device_runner(*world.device, *world.data_ops, *bound, *world.catalog,
                                   *world.pool, options);
  if (!runner) return runner.error();
  FinalsProblem opened;
  opened.text_ = bound->text();
  opened.candidate_ = std::move(list->candidates[list->default_index]);
  opened.runner_ = std::move(runner).value();
  return opened;
}

Result<std::shared_ptr<const CompiledKernel>> FinalsProblem::compile(FinalsWorld& world,
                                                                     long long cycles) const {
  CompileRequest request = render(candidate_, *world.catalog, world.device->profile().sm_arch);
  if (cycles > 0) {
    auto slower =
        with_wait(std::move(request.source), candidate_.plan.launches.front().kernel, cycles);
    if (!slower) return slower.error();
    request.source = std::move(slower).value();
  }
  return world.pool->submit(std::move(request)).get();
}

Result<Runner::Id> FinalsProblem::load(FinalsWorld& world, const Candidate& candidate) {
  const CompileResult kernel =
      world.pool->submit(render(candidate, *world.catalog, world.device->profile().sm_arch)).get();
  if (!kernel) return kernel.error();
  auto prepared = runner_->prepare(candidate, *kernel.value());
  if (!prepared) return prepared.error();
  if (prepared->step.outcome != Outcome::ok) {
    return Error{ErrorCode::device, concat(candidate.id(), ": ", prepared->step.detail)};
  }
  return prepared->id;
}

Result<std::string> with_wait(std::string source, std::string_view kernel, long long cycles) {
  // The definition: the qualifier, the name, its parameters, the brace that opens the body.
  for (std::size_t at = source.find("__global__"); at != std::string::npos;
       at = source.find("__global__", at + 1)) {
    const std::size_t brace = source.find('{', at);
    const std::size_t name = source.find(concat(kernel, "("), at);
    if (brace == std::string::npos || name > brace) continue;
    source.insert(brace + 1, concat(" { const long long until = clock64() + ", cycles,
                                    "; while (clock64() < until) {} }"));
    return source;
  }
  return Error{ErrorCode::internal, concat("no kernel ", kernel, " in the source")};
}

}  // namespace kernwright
