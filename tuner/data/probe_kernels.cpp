#include "tuner/data/probe_kernels.h"

#include <utility>

#include "support/text.h"
#include "support/try.h"
#include "tuner/data/embedded_kernels.h"

namespace kernwright {
namespace {

/// The steps of the SM kernel, for about 0.1 ms at 1.7 GHz: a step takes 64 cycles with 32 warps of
/// eight chains on an SM.
constexpr std::int64_t kSteps = 2'700;
constexpr std::uint32_t kThreads = 512;
constexpr std::uint32_t kBlocksPerSm = 2;
/// The copied bytes in units of the L2. As they are read and written, they pass the L2 four times
/// over.
constexpr std::int64_t kCopiedL2 = 2;
constexpr std::uint8_t kPattern = 0x5A;

ArgumentPlan number(ArgumentKind kind, std::int64_t value) {
  ArgumentPlan argument;
  argument.kind = kind;
  argument.value = value;
  return argument;
}

ExecutionPlan plan_of(std::string kernel, std::uint32_t blocks,
                      std::vector<ArgumentPlan> arguments) {
  ExecutionPlan plan;
  LaunchPlan launch;
  launch.kernel = std::move(kernel);
  launch.grid = {blocks, 1, 1};
  launch.block = {kThreads, 1, 1};
  launch.arguments = std::move(arguments);
  plan.launches.push_back(std::move(launch));
  return plan;
}

}  // namespace

CompileRequest ProbeKernels::request(int sm_arch) {
  CompileRequest request;
  request.name = "tuner/data/kernels/probe.cu";
  request.target = concat("sm_", sm_arch);
  for (const EmbeddedFile& file : embedded_tuner_kernels()) {
    if (file.path == "probe.cu") request.source = file.content;
  }
  return request;
}

Result<ProbeKernels> ProbeKernels::make(Device& device, const CompileResult& compiled) {
  if (!compiled) return compiled.error();
  const DeviceProfile& profile = device.profile();
  ProbeKernels kernels;
  kernels.bits_ = compiled.value()->bits;
  const std::int64_t bytes = kCopiedL2 * profile.l2_bytes / 256 * 256 + 256;
  KW_ASSIGN(kernels.memory_, device.allocate(2 * bytes));
  const auto from = static_cast<std::int64_t>(kernels.memory_->address());
  KW_TRY(device.fill(kernels.memory_->address(), kPattern, 2 * bytes));
  const auto blocks = static_cast<std::uint32_t>(profile.sm_count) * kBlocksPerSm;
  const auto word = [](std::int64_t value) { return number(ArgumentKind::int64, value); };
  KW_ASSIGN(auto sm,
            device.load(kernels.bits_, plan_of("kernwright_sm_probe", blocks,
                                               {number(ArgumentKind::int32, kSteps), word(from)})));
  KW_ASSIGN(auto dram, device.load(kernels.bits_,
                                   plan_of("kernwright_dram_probe", blocks,
                                           {word(from), word(from + bytes), word(bytes / 16)})));
  kernels.sm_ = std::move(sm);
  kernels.dram_ = std::move(dram);
  return kernels;
}

Result<std::shared_ptr<LoadedProgram>> ProbeKernels::empty(Device& device,
                                                           const ExecutionPlan& plan) const {
  ExecutionPlan empty;
  empty.launches = plan.launches;
  for (LaunchPlan& launch : empty.launches) {
    launch.kernel = "kernwright_empty";
    launch.arguments.clear();
  }
  return device.load(bits_, empty);
}

std::string ProbeKernels::launch_shape(const ExecutionPlan& plan) {
  std::string text;
  for (const LaunchPlan& launch : plan.launches) {
    for (const Extent3& extent : {launch.grid, launch.block, launch.cluster}) {
      text += concat(extent[0], ",", extent[1], ",", extent[2], " ");
    }
    text += concat(launch.dynamic_smem, launch.cooperative ? " cooperative" : "",
                   launch.programmatic ? " programmatic" : "", ";");
  }
  return text;
}

}  // namespace kernwright
