#include "service/serve/dispatch.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <utility>

#include "device/cuda/driver_device.h"
#include "device/program/context_memory.h"
#include "device/program/launch_graph.h"
#include "device/timing/kernel_paths.h"
#include "device/timing/path_timer.h"
#include "support/text.h"
#include "support/try.h"
#include "tuner/audit/audit.h"
#include "tuner/audit/host_facts.h"
#include <kernwright/baked_launch.h>

namespace kernwright {
namespace {

constexpr int kRounds = 31;
constexpr int kHostCalls = 2'000;
constexpr std::size_t kNodes = 32;  // in the graphs that time kernel and gap
constexpr std::size_t kSets = 2;

/// Returns microseconds per call: the fastest of a few runs, since nothing makes a call faster than
/// it is.
template <typename Call>
Result<double> time_calls(Call&& call) {
  double best_us = 0;
  for (int run = 0; run < kRounds; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kHostCalls; ++i) {
      if (const auto done = call(); !done) return done.error();
    }
    const std::chrono::duration<double, std::micro> elapsed =
        std::chrono::steady_clock::now() - begin;
    const double us = elapsed.count() / kHostCalls;
    if (run == 0 || us < best_us) best_us = us;
  }
  return best_us;
}

/// The GPU's primary context, current as long as this lives, with a stream.
class Workplace {
 public:
  static Result<std::unique_ptr<Workplace>> open(const DriverApi& api, int ordinal) {
    KW_ASSIGN(const CUcontext context, primary_context(api, ordinal));
    std::unique_ptr<Workplace> place(new Workplace(api, context));
    if (!place->scope_.status()) return driver_error(api, place->scope_.status());
    CUstream stream = nullptr;
    const DriverStatus status{"cuStreamCreate", api.stream_create(&stream, CU_STREAM_NON_BLOCKING)};
    if (!status) return driver_error(api, status);
    place->stream_ = StreamHandle(api, stream);
    return place;
  }

  CUstream stream() const { return stream_.get(); }

 private:
  Workplace(const DriverApi& api, CUcontext context) : scope_(api, context) {}

  ContextScope scope_;
  StreamHandle stream_;
};

/// Zeroed buffers for some sets of a kernel's arguments, and its workspace.
class Buffers {
 public:
  static Result<Buffers> make(const DriverApi& api, CUstream stream, const LoadedKernel& kernel) {
    Buffers buffers;
    std::int64_t bytes = 0;
    std::vector<std::int64_t> offsets;
    const auto place = [&](std::int64_t wanted) {
      offsets.push_back(bytes);
      bytes += (wanted + 255) / 256 * 256 + 256;
    };
    const std::vector<TensorShape>& tensors = kernel.launcher()->plan().tensors;
    for (std::size_t set = 0; set < kSets; ++set) {
      for (const TensorShape& tensor : tensors) place(tensor.bytes());
    }
    place(kernel.workspace_bytes());
    KW_ASSIGN(buffers.memory_, ContextMemory::allocate(api, bytes));
    const DriverStatus status{
        "cuMemsetD8Async",
        api.memset_d8_async(buffers.memory_.address(), 0, static_cast<std::size_t>(bytes), stream)};
    if (!status) return driver_error(api, status);
    const auto address = [&](std::size_t i) {
      return buffers.memory_.address() + static_cast<DevicePointer>(offsets[i]);
    };
    for (std::size_t i = 0; i < kSets * tensors.size(); ++i) {
      buffers.sets_[i / tensors.size()].emplace_back(address(i));
    }
    buffers.workspace_ = address(offsets.size() - 1);
    return buffers;
  }

  const std::vector<Arg>& set(std::size_t i) const { return sets_[i]; }
  void* workspace() const { return reinterpret_cast<void*>(workspace_); }

 private:
  ContextMemory memory_;
  std::array<std::vector<Arg>, kSets> sets_;
  DevicePointer workspace_ = 0;
};

/// Times checking and packing alone: the same kernel over a driver that does nothing.
Result<double> time_packing(ServiceCore& core, const LoadedKernel& kernel, const Buffers& buffers) {
  DriverApi silent = kernel.launcher()->api();
  Lookup<CompiledKernel> bits = core.cache().artifact(kernel.summary().artifact);
  if (!bits) {
    return Error{ErrorCode::not_found,
                 concat("artifact ", kernel.summary().artifact, " is not in the cache any more")};
  }
  KW_ASSIGN(auto launcher, load_launcher(silent, bits.value->bits, kernel.launcher()->plan(),
                                         core.identity().ordinal));
  silent.launch_kernel_ex = [](const CUlaunchConfig*, CUfunction, void**, void**) {
    return CUDA_SUCCESS;
  };
  silent.memset_d8_async = [](CUdeviceptr, unsigned char, std::size_t, CUstream) {
    return CUDA_SUCCESS;
  };
  const auto packed = std::make_shared<LoadedKernel>(
      kernel.summary(), std::make_shared<const CompactPlan>(kernel.plan()), std::move(launcher),
      Error{});
  const std::vector<Arg>& arguments = buffers.set(0);
  return time_calls([&] {
    return packed->launch(nullptr, arguments.data(), arguments.size(), buffers.workspace());
  });
}

/// Returns microseconds per unit of a graph of `kNodes` units.
Result<double> time_units(const DriverApi& api, CUstream stream, const PreparedProgram& program,
                          const ArgumentView& arguments) {
  const LaunchArguments held{.tensors = {arguments.tensors.begin(), arguments.tensors.end()},
                             .scalars = {arguments.scalars.begin(), arguments.scalars.end()},
                             .workspace = arguments.workspace,
                             .references = {},
                             .magnitudes = {}};
  KW_ASSIGN(
      auto graph,
      LaunchGraph::make(api, std::vector<SequenceStep>(
                                 kNodes, SequenceStep{.program = &program, .arguments = held})));
  TimedCall path{.name = "graph of units",
                 .launch = [&]() -> Result<void> {
                   const DriverStatus status = graph->launch(stream);
                   if (!status) return driver_error(api, status);
                   return {};
                 },
                 .host_us = {},
                 .period_us = {}};
  KW_TRY(time_paths(api, stream, {&path, 1}, {.rounds = kRounds}));
  return path.median_period_us() / static_cast<double>(kNodes);
}

/// Returns the same for an empty kernel in the geometry of each of the plan's launches.
Result<double> time_gaps(ServiceCore& core, const DriverApi& api, CUstream stream,
                         const ExecutionPlan& plan) {
  CompileRequest request;
  request.name = "empty.cu";
  request.source = "extern \"C\" __global__ void empty() {}\n";
  request.target = concat("sm_", core.profile().sm_arch);
  const CompileResult compiled = core.builder().pool().submit(request).get();
  if (!compiled) return compiled.error();
  ExecutionPlan empty;
  for (const LaunchPlan& launch : plan.launches) {
    LaunchPlan& gap = empty.launches.emplace_back();
    gap.kernel = "empty";
    gap.grid = launch.grid;
    gap.block = launch.block;
  }
  KW_ASSIGN(auto launcher, load_launcher(api, (*compiled)->bits, empty, core.identity().ordinal));
  return time_units(api, stream, launcher->program(), ArgumentView({}, {}, 0));
}

Result<LaunchTimes> time_launches(const LoadedKernel& kernel, const Buffers& buffers,
                                  CUstream stream) {
  const std::size_t count = buffers.set(0).size();
  std::vector<BakedLaunch> baked;  // one per set, and one for all
  for (std::size_t i = 0; i <= kSets; ++i) {
    KW_ASSIGN(BakedLaunch launch, kernel.bake(buffers.set(i % kSets).data(), count));
    baked.push_back(std::move(launch));
  }
  const KernelCalls calls{
      .stream =
          [&](std::size_t set) {
            return kernel.launch(stream, buffers.set(set).data(), count, buffers.workspace());
          },
      .graph = [&](std::size_t set) { return baked[set].launch(stream); },
      .rebind =
          [&](std::size_t set) {
            Result<void> bound = baked.back().rebind(buffers.set(set).data(), count);
            return bound ? baked.back().launch(stream) : bound;
          }};
  return time_kernel_paths(kernel.launcher()->api(), stream, calls, kSets, {.rounds = kRounds});
}

}  // namespace

Result<Dispatch> measure_dispatch(ServiceCore& core, const Problem& problem) {
  if (!core.has_device()) {
    return Error{ErrorCode::unavailable,
                 concat("launches are timed on a GPU; this service works for the sku ",
                        core.profile().id, " without one")};
  }
  KW_ASSIGN(Kernel best, core.get_best_kernel(problem));
  const std::shared_ptr<const LoadedKernel> kernel = LoadedKernel::of(best);
  const DriverApi& api = kernel->launcher()->api();
  KW_ASSIGN(const auto place, Workplace::open(api, core.identity().ordinal));
  const CUstream stream = place->stream();
  KW_ASSIGN(const Buffers buffers, Buffers::make(api, stream, *kernel));

  Dispatch dispatch;
  dispatch.kernel = kernel->summary();
  KW_ASSIGN(dispatch.lookup_us, time_calls([&] { return core.get_best_kernel(problem); }));
  KW_ASSIGN(const double packing_us, time_packing(core, *kernel, buffers));
  dispatch.packing_us = packing_us;
  KW_ASSIGN(dispatch.paths, time_launches(*kernel, buffers, stream));
  dispatch.driver_us = std::max(0.0, dispatch.paths.times.front().host_us - packing_us);

  BoundArguments bound;
  const std::vector<Arg>& arguments = buffers.set(0);
  KW_TRY(kernel->bind(arguments.data(), arguments.size(), bound));
  KW_ASSIGN(const double unit_us,
            time_units(api, stream, kernel->launcher()->program(),
                       bound.view(reinterpret_cast<DevicePointer>(buffers.workspace()))));
  KW_ASSIGN(const double gap_us, time_gaps(core, api, stream, kernel->launcher()->plan()));
  dispatch.gap_us = gap_us;
  dispatch.kernel_us = std::max(0.0, unit_us - gap_us);
  dispatch.hooks = find_hooks();
  return dispatch;
}

std::vector<AuditRow> find_hooks() {
  AuditInputs inputs;
  inputs.environment = read_environment();
  inputs.mapped_files = HostReader().mapped_files();
  std::vector<AuditRow> hooks;
  for (AuditRow& row : assess(inputs).rows) {
    const bool of_process = row.check == "injection_variables" || row.check == "mapped_libraries";
    if (of_process && row.trust != Trust::a) hooks.push_back(std::move(row));
  }
  return hooks;
}

}  // namespace kernwright
