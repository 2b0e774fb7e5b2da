#include "device/program/prepared_program.h"

#include <algorithm>
#include <cstring>

#include "device/program/tensor_map.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

std::uint64_t volume(const Extent3& extent) {
  return std::uint64_t{extent[0]} * extent[1] * extent[2];
}

/// Returns the number of things that an argument of this kind may refer to.
std::size_t referable(const ExecutionPlan& plan, ArgumentKind kind) {
  switch (kind) {
    case ArgumentKind::tensor:
    case ArgumentKind::reference:
    case ArgumentKind::magnitude:
      return plan.tensors.size();
    case ArgumentKind::tensor_map:
      return plan.tensor_maps.size();
    case ArgumentKind::workspace:
      return plan.workspaces.size();
    case ArgumentKind::scalar:
      return plan.scalars.size();
    case ArgumentKind::int32:
    case ArgumentKind::int64:
    case ArgumentKind::early:
    case ArgumentKind::ahead:
      break;
  }
  return 0;
}

Error unfit(const LaunchPlan& launch, std::string_view what) {
  return {ErrorCode::invalid_argument, concat("kernel ", launch.kernel, ": ", what)};
}

Result<void> check_plan(const ExecutionPlan& plan) {
  if (plan.tensor_maps.size() > PreparedProgram::kMaxTensorMaps) {
    return Error{ErrorCode::invalid_argument,
                 concat("the plan has ", plan.tensor_maps.size(), " tensor maps; at most ",
                        PreparedProgram::kMaxTensorMaps, " can be passed")};
  }
  for (const TensorMapPlan& map : plan.tensor_maps) {
    if (map.tensor >= plan.tensors.size()) {
      return Error{ErrorCode::internal, concat("tensor map ", map.name, " refers to tensor ",
                                               map.tensor, " of ", plan.tensors.size())};
    }
    if (map.workspace != TensorMapPlan::kInTensor && map.workspace >= plan.workspaces.size()) {
      return Error{ErrorCode::internal, concat("tensor map ", map.name, " refers to workspace ",
                                               map.workspace, " of ", plan.workspaces.size())};
    }
  }
  for (const LaunchPlan& launch : plan.launches) {
    if (launch.arguments.size() > PreparedProgram::kMaxArguments) {
      return unfit(launch, concat(launch.arguments.size(), " arguments; at most ",
                                  PreparedProgram::kMaxArguments, " can be passed"));
    }
    for (std::size_t i = 0; i < launch.arguments.size(); ++i) {
      const ArgumentPlan& argument = launch.arguments[i];
      const bool absent =
          argument.index == ArgumentPlan::kAbsent && argument.kind != ArgumentKind::scalar;
      if (!carries_value(argument) && !absent && argument.index >= referable(plan, argument.kind)) {
        return Error{ErrorCode::internal,
                     concat("kernel ", launch.kernel, ": argument ", i, " refers to item ",
                            argument.index, " of ", referable(plan, argument.kind))};
      }
    }
  }
  return {};
}

// For tensors and tensor maps that the problem does not have.
constexpr std::array<std::byte, sizeof(CUtensorMap)> kZeros{};

std::uintptr_t address_of(const void* object) { return reinterpret_cast<std::uintptr_t>(object); }

Result<void> check_limits(const LaunchPlan& launch, const DriverKernel& kernel) {
  if (volume(launch.block) > kernel.max_threads) {
    return unfit(launch, concat(volume(launch.block), " threads per block > ", kernel.max_threads,
                                " that its registers and launch bounds allow"));
  }
  if (kernel.static_smem + launch.dynamic_smem > kernel.smem_limit) {
    return unfit(launch, concat(kernel.static_smem, " static + ", launch.dynamic_smem,
                                " dynamic bytes of shared memory > ", kernel.smem_limit));
  }
  for (std::size_t i = 0; i < launch.grid.size(); ++i) {
    if (launch.cluster[i] == 0 || launch.grid[i] % launch.cluster[i] != 0) {
      return unfit(launch, concat("grid extent ", launch.grid[i],
                                  " is not a multiple of the cluster's ", launch.cluster[i]));
    }
  }
  return {};
}

/// An address for checking and encoding everything else before the real one is known. It is never
/// dereferenced.
constexpr CUdeviceptr kPlaceholderAddress = CUdeviceptr{1} << 32;

}  // namespace

Result<std::unique_ptr<PreparedProgram>> PreparedProgram::load(
    const DriverApi& api, CUdevice device, std::shared_ptr<LoadedLibrary> library,
    std::shared_ptr<const ExecutionPlan> plan, DriverStatus& status) {
  std::unique_ptr<PreparedProgram> program(
      new PreparedProgram(api, device, std::move(plan), std::move(library)));
  KW_TRY(program->prepare(nullptr, status));
  return program;
}

Result<std::unique_ptr<PreparedProgram>> PreparedProgram::with(
    std::shared_ptr<const ExecutionPlan> plan, DriverStatus& status) const {
  std::unique_ptr<PreparedProgram> program(
      new PreparedProgram(api_, device_, std::move(plan), library_));
  KW_TRY(program->prepare(this, status));
  return program;
}

Result<void> PreparedProgram::prepare(const PreparedProgram* like, DriverStatus& status) {
  KW_TRY(check_plan(*plan_));
  launches_.reserve(plan_->launches.size());
  for (const LaunchPlan& launch : plan_->launches) {
    KW_TRY(prepare_launch(launch, status));
  }
  DevicePointer offset = 0;
  workspace_offsets_.reserve(plan_->workspaces.size());
  for (const WorkspacePlan& workspace : plan_->workspaces) {
    const auto bytes = static_cast<std::size_t>(workspace.bytes);
    if (workspace.zeroed && bytes > 0) zeroed_.push_back({offset, bytes});
    if (workspace.kept_zero && bytes > 0) kept_zero_.push_back({offset, bytes});
    workspace_offsets_.push_back(offset);
    offset += (bytes + 255) / 256 * 256;
  }
  tensor_maps_.reserve(plan_->tensor_maps.size());
  for (std::size_t i = 0; i < plan_->tensor_maps.size(); ++i) {
    KW_ASSIGN(const PreparedTensorMap prepared, prepare_tensor_map(i, like, status));
    tensor_maps_.push_back(prepared);
  }
  return {};
}

Result<PreparedProgram::PreparedTensorMap> PreparedProgram::prepare_tensor_map(
    std::size_t number, const PreparedProgram* like, DriverStatus& status) const {
  const TensorMapPlan& map = plan_->tensor_maps[number];
  const PreparedTensorMap* const known =
      like != nullptr && number < like->tensor_maps_.size() ? &like->tensor_maps_[number] : nullptr;
  PreparedTensorMap prepared;
  prepared.tensor = map.tensor;
  if (map.workspace != TensorMapPlan::kInTensor) {
    prepared.workspace_offset = workspace_offsets_[map.workspace];
  }
  if (known != nullptr && map == like->plan_->tensor_maps[number]) {
    prepared.encoded = known->encoded;
    prepared.address_word = known->address_word;
    return prepared;
  }
  status = encode_tensor_map(api_, map, kPlaceholderAddress, prepared.encoded);
  if (!status) {
    return Error{ErrorCode::device,
                 concat("tensor map ", map.name, ": ", driver_error(api_, status).message)};
  }
  const std::optional<std::size_t> word = known != nullptr ? known->address_word : std::nullopt;
  prepared.address_word = word && prepared.encoded.opaque[*word] == kPlaceholderAddress
                              ? word
                              : find_address_word(api_, prepared.encoded);
  return prepared;
}

Result<void> PreparedProgram::prepare_launch(const LaunchPlan& launch, DriverStatus& status) {
  KW_ASSIGN(const DriverKernel* const kernel, library_->kernel(launch.kernel, device_, status));
  KW_TRY(check_limits(launch, *kernel));
  KW_TRY(check_parameters(*plan_, launch, kernel->parameter_bytes));
  PreparedLaunch prepared;
  prepared.kernel = kernel->kernel;
  KW_TRY(set_kernel_attributes(launch, prepared.kernel, status));
  prepare_parameters(launch, prepared);

  prepared.config.gridDimX = launch.grid[0];
  prepared.config.gridDimY = launch.grid[1];
  prepared.config.gridDimZ = launch.grid[2];
  prepared.config.blockDimX = launch.block[0];
  prepared.config.blockDimY = launch.block[1];
  prepared.config.blockDimZ = launch.block[2];
  prepared.config.sharedMemBytes = launch.dynamic_smem;
  if (volume(launch.cluster) > 1) {
    CUlaunchAttribute& attribute = prepared.attributes[prepared.node_attributes++];
    attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute.value.clusterDim.x = launch.cluster[0];
    attribute.value.clusterDim.y = launch.cluster[1];
    attribute.value.clusterDim.z = launch.cluster[2];
  }
  if (launch.cooperative) {
    CUlaunchAttribute& attribute = prepared.attributes[prepared.node_attributes++];
    attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    attribute.value.cooperative = 1;
  }
  CUlaunchAttribute& programmatic = prepared.attributes[prepared.node_attributes];
  programmatic.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  programmatic.value.programmaticStreamSerializationAllowed = 1;
  prepared.programmatic = launch.programmatic;
  launches_.push_back(std::move(prepared));
  return {};
}

void PreparedProgram::prepare_parameters(const LaunchPlan& launch, PreparedLaunch& prepared) const {
  prepared.parameters.assign(launch.arguments.size(), {Source::address, address_of(kZeros.data())});
  const auto word = [](Source source, std::size_t index) {
    return Parameter{source, index * sizeof(std::uint64_t)};
  };
  for (std::size_t i = 0; i < launch.arguments.size(); ++i) {
    const ArgumentPlan& argument = launch.arguments[i];
    Parameter& parameter = prepared.parameters[i];
    if (!carries_value(argument) && argument.index == ArgumentPlan::kAbsent) continue;
    // A narrower parameter is read from the low bytes of a word, which come first (little-endian).
    switch (argument.kind) {
      case ArgumentKind::int32:
      case ArgumentKind::int64:
        parameter = {Source::address, address_of(&argument.value)};
        break;
      case ArgumentKind::tensor:
        parameter = word(Source::tensors, argument.index);
        break;
      case ArgumentKind::reference:
        parameter = word(Source::references, argument.index);
        break;
      case ArgumentKind::magnitude:
        parameter = word(Source::magnitudes, argument.index);
        break;
      case ArgumentKind::tensor_map:
        parameter = {Source::tensor_maps, argument.index * sizeof(CUtensorMap)};
        break;
      case ArgumentKind::workspace:
        if (plan_->workspaces[argument.index].bytes == 0) break;
        [[fallthrough]];
      case ArgumentKind::scalar:
      case ArgumentKind::early:
      case ArgumentKind::ahead:
        parameter = word(Source::computed, prepared.computed.size());
        prepared.computed.push_back(argument);
        break;
    }
  }
}

Result<void> PreparedProgram::set_kernel_attributes(const LaunchPlan& launch, CUkernel kernel,
                                                    DriverStatus& status) const {
  // Launches of one kernel share its attributes, so the largest demand counts.
  std::uint32_t dynamic_smem = 0;
  std::uint64_t cluster = 1;
  for (const LaunchPlan& other : plan_->launches) {
    if (other.kernel != launch.kernel) continue;
    dynamic_smem = std::max(dynamic_smem, other.dynamic_smem);
    cluster = std::max(cluster, volume(other.cluster));
  }
  if (dynamic_smem > 0) {
    status = library_->raise(kernel, device_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                             static_cast<int>(dynamic_smem));
  }
  constexpr std::uint64_t kPortableCluster = 8;
  if (status && cluster > kPortableCluster) {
    status =
        library_->raise(kernel, device_, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1);
  }
  if (!status) return unfit(launch, driver_error(api_, status).message);
  return {};
}

BlockDemand PreparedProgram::demand(std::size_t launch) const {
  const auto attribute = [&](CUfunction_attribute id) {
    int value = 0;
    static_cast<void>(api_.kernel_get_attribute(&value, id, launches_[launch].kernel, device_));
    return value;
  };
  const LaunchPlan& plan = plan_->launches[launch];
  return {.blocks = static_cast<std::int64_t>(volume(plan.grid)),
          .threads = static_cast<std::int64_t>(volume(plan.block)),
          .registers = attribute(CU_FUNC_ATTRIBUTE_NUM_REGS),
          .smem_bytes =
              attribute(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES) + std::int64_t{plan.dynamic_smem}};
}

Multiprocessors PreparedProgram::multiprocessors() const {
  const auto attribute = [&](CUdevice_attribute id) {
    int value = 0;
    static_cast<void>(api_.device_get_attribute(&value, id, device_));
    return value;
  };
  return {.count = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
          .blocks = attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR),
          .threads = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR),
          .registers = attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR),
          .smem_bytes = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
          .reserved_smem_bytes = attribute(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK)};
}

}  // namespace kernwright
