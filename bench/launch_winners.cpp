// Launches the winner of each problem of a worklist, each time on a clean L2 and on the data that
// it was tuned on. It is what to run under a profiler of others, such as ncu: `kernwright profile`
// has a profiler of its own, and two cannot count at once. The kernels come in the order of the
// worklist.

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/common/command.h"
#include "bench/common/finals_world.h"
#include "cache/layers/tiered_cache.h"
#include "cache/records/record.h"
#include "service/serve/core.h"
#include "service/sweep/worklist.h"
#include "service/tune/profiler.h"
#include "support/text.h"
#include "tuner/check/checker.h"
#include "tuner/data/buffer_sets.h"
#include "tuner/data/input_drawer.h"

namespace kernwright {
namespace {

constexpr const char* kUsage = "usage: launch_winners --cache DIR --worklist FILE [--times N]\n";
/// As many times the L2 is read to clean it as before a kernel that `profile` counts.
constexpr std::int64_t kCleaningPasses = 4;

void need(const Result<void>& done) {
  if (!done) fail(done.error());
}

void launch(const FinalsWorld& world, const TieredCache& cache, const BoundProblem& problem,
            const TuningRecord& record, int times) {
  const KernelTemplate& made =
      *take(world.catalog->kernel_template(record.winner.choice.kernel_template));
  const Candidate candidate = take(
      make_candidate(made, problem, record.winner.choice.configuration, world.device->profile()));
  Device& device = *world.device;
  CheckedSets checked;
  checked.drawer = take(InputDrawer::make(device, *world.pool, problem, *world.catalog));
  const BufferSets sets =
      take(BufferSets::make(device, *world.data_ops, problem.shapes(), L2State::warm, 1, checked));
  const Lookup<CompiledKernel> kernel = cache.artifact(record.winner.artifact);
  if (!kernel) fail({ErrorCode::not_found, concat(problem.text(), ": the cache has no bits")});
  const auto program = take(device.load(kernel.value->bits, candidate.plan));
  LaunchArguments arguments;
  arguments.tensors = sets.addresses(0, candidate.plan.tensors);
  for (const Scalar& scalar : candidate.plan.scalars) {
    arguments.scalars.push_back(scalar.checked_value);
  }
  std::unique_ptr<DeviceBuffer> workspace;
  if (const std::int64_t bytes = candidate.plan.workspace_bytes(); bytes > 0) {
    workspace = take(device.allocate(bytes));
    need(device.fill(workspace->address(), 0, bytes));
    arguments.workspace = workspace->address();
  }
  const std::int64_t bytes = kCleaningPasses * device.profile().l2_bytes;
  const auto other = take(device.allocate(bytes));
  need(device.fill(other->address(), 0, bytes));
  const MemoryRegion region{other->address(), bytes};
  for (int time = 0; time < times; ++time) {
    static_cast<void>(take(world.data_ops->enqueue_hash({&region, 1})));
    static_cast<void>(take(world.data_ops->take_findings()));
    need(device.run(*program, arguments));
    for (const LaunchPlan& one : candidate.plan.launches) std::printf("%s\n", one.kernel.c_str());
  }
}

int run(int argc, const char* const* argv) {
  if (lacks_arguments(argc, argv, kUsage)) return kCannotRun;
  expect_options(argc, argv, kUsage);
  const int times = static_cast<int>(integer_option(argc, argv, "--times", 1));
  ServiceOptions options;
  options.cache = text_option(argc, argv, "--cache");
  const auto service = take(ServiceCore::open(options));
  const FinalsWorld world = take(FinalsWorld::open());
  for (const WorklistEntry& entry : take(read_worklist(text_option(argc, argv, "--worklist")))) {
    const BoundProblem problem = take(world.catalog->bind(entry.problem));
    launch(world, service->cache(), problem, take(find_record(service->answers(), problem)).record,
           times);
  }
  return 0;
}

}  // namespace
}  // namespace kernwright

int main(int argc, char** argv) { return kernwright::run(argc, argv); }
