#include "device/program/prepared_form.h"

#include <algorithm>

#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

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
  if (plan.tensor_maps.size() > PreparedForm::kMaxTensorMaps) {
    return Error{ErrorCode::invalid_argument,
                 concat("the plan has ", plan.tensor_maps.size(), " tensor maps; at most ",
                        PreparedForm::kMaxTensorMaps, " can be passed")};
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
    if (launch.arguments.size() > PreparedForm::kMaxArguments) {
      return unfit(launch, concat(launch.arguments.size(), " arguments; at most ",
                                  PreparedForm::kMaxArguments, " can be passed"));
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

}  // namespace

Result<std::shared_ptr<const PreparedForm>> PreparedForm::make(
    const DriverApi& api, CUdevice device, std::shared_ptr<LoadedLibrary> library,
    std::shared_ptr<const PlanForm> plan, DriverStatus& status) {
  const std::shared_ptr<PreparedForm> form(
      new PreparedForm(api, device, std::move(library), std::move(plan)));
  KW_TRY(form->prepare(status));
  return std::shared_ptr<const PreparedForm>(form);
}

Result<void> PreparedForm::prepare(DriverStatus& status) {
  const ExecutionPlan& whole = plan->plan;
  KW_TRY(check_plan(whole));
  launches.reserve(whole.launches.size());
  for (std::size_t i = 0; i < whole.launches.size(); ++i) {
    KW_TRY(prepare_launch(i, status));
  }
  for (std::size_t i = 0; i < whole.workspaces.size(); ++i) {
    if (whole.workspaces[i].zeroed) zeroed.push_back(i);
    if (whole.workspaces[i].kept_zero) kept_zero.push_back(i);
  }
  return {};
}

Result<void> PreparedForm::prepare_launch(std::size_t number, DriverStatus& status) {
  const LaunchPlan& launch = plan->plan.launches[number];
  KW_ASSIGN(const DriverKernel* const kernel, library->kernel(launch.kernel, device, status));
  KW_TRY(check_limits(launch, *kernel));
  KW_TRY(check_parameters(plan->plan, launch, kernel->parameter_bytes));
  Launch prepared;
  prepared.kernel = kernel->kernel;
  KW_TRY(set_kernel_attributes(launch, prepared.kernel, status));
  prepared.grid = plan->launches[number];
  prepare_parameters(launch, prepared);

  prepared.config.blockDimX = launch.block[0];
  prepared.config.blockDimY = launch.block[1];
  prepared.config.blockDimZ = launch.block[2];
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
  launches.push_back(std::move(prepared));
  return {};
}

void PreparedForm::prepare_parameters(const LaunchPlan& launch, Launch& prepared) const {
  prepared.parameters.assign(launch.arguments.size(), {Source::address, address_of(kZeros.data())});
  std::size_t number = prepared.grid + PlanForm::kArguments;  // of the next one with a value
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
        parameter = word(Source::numbers, number++);
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
      case ArgumentKind::early:
      case ArgumentKind::ahead:
        parameter = word(Source::computed, prepared.computed.size());
        prepared.computed.push_back({argument.kind, number++, {}});
        break;
      case ArgumentKind::workspace:
        parameter = word(Source::computed, prepared.computed.size());
        prepared.computed.push_back({argument.kind, argument.index, {}});
        break;
      case ArgumentKind::scalar:
        parameter = word(Source::computed, prepared.computed.size());
        prepared.computed.push_back(
            {argument.kind, argument.index, plan->plan.scalars[argument.index].dtype});
        break;
    }
  }
}

Result<void> PreparedForm::set_kernel_attributes(const LaunchPlan& launch, CUkernel kernel,
                                                 DriverStatus& status) const {
  // Launches of one kernel share its attributes, so the largest demand counts.
  std::uint32_t dynamic_smem = 0;
  std::uint64_t cluster = 1;
  for (const LaunchPlan& other : plan->plan.launches) {
    if (other.kernel != launch.kernel) continue;
    dynamic_smem = std::max(dynamic_smem, other.dynamic_smem);
    cluster = std::max(cluster, volume(other.cluster));
  }
  if (dynamic_smem > 0) {
    status = library->raise(kernel, device, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                            static_cast<int>(dynamic_smem));
  }
  constexpr std::uint64_t kPortableCluster = 8;
  if (status && cluster > kPortableCluster) {
    status = library->raise(kernel, device, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1);
  }
  if (!status) return unfit(launch, driver_error(api, status).message);
  return {};
}

}  // namespace kernwright
