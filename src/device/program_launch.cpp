#include <algorithm>

#include "device/prepared_program.h"
#include "device/scalar_bits.h"

namespace kernwright {
namespace {

// What a kernel reads for parameters that the plan does not give: the driver copies as many as the
// kernel declares and has no call that counts them. CUDA allows 32,764 bytes.
std::array<std::byte, 32'764> zero_parameter{};

// Of addresses in tensor maps; the driver refuses others.
constexpr DevicePointer kTensorMapAlignment = 16;

bool needs_zeros(const WorkspacePlan& workspace) { return workspace.zeroed && workspace.bytes > 0; }

/// CUlaunchConfig and CUDA_KERNEL_NODE_PARAMS name the geometry alike.
template <typename T>
void set_geometry(const LaunchPlan& launch, T& config) {
  config.gridDimX = launch.grid[0];
  config.gridDimY = launch.grid[1];
  config.gridDimZ = launch.grid[2];
  config.blockDimX = launch.block[0];
  config.blockDimY = launch.block[1];
  config.blockDimZ = launch.block[2];
  config.sharedMemBytes = launch.dynamic_smem;
}

}  // namespace

DriverStatus PreparedProgram::place_tensor_maps(const ArgumentView& arguments,
                                                TensorMaps& maps) const {
  for (std::size_t i = 0; i < tensor_maps_.size(); ++i) {
    maps[i] = tensor_maps_[i];
    const TensorMapPlan& map = plan_.tensor_maps[i];
    const DevicePointer address =
        map.workspace == TensorMapPlan::kInTensor
            ? arguments.tensors[map.tensor]
            : arguments.workspace + static_cast<DevicePointer>(workspace_offsets_[map.workspace]);
    if (address_words_[i] && address % kTensorMapAlignment == 0) {
      maps[i].opaque[*address_words_[i]] = address;
      continue;
    }
    const DriverStatus status{
        "cuTensorMapReplaceAddress",
        api_.tensor_map_replace_address(&maps[i], reinterpret_cast<void*>(address))};
    if (!status) return status;
  }
  return {};
}

std::uint64_t PreparedProgram::argument_bits(const ArgumentPlan& argument,
                                             const ArgumentView& arguments) const {
  if (carries_value(argument)) return static_cast<std::uint64_t>(argument.value);
  if (argument.index == ArgumentPlan::kAbsent) return 0;
  switch (argument.kind) {
    case ArgumentKind::tensor:
      return arguments.tensors[argument.index];
    case ArgumentKind::reference:
      return arguments.references[argument.index];
    case ArgumentKind::magnitude:
      return arguments.magnitudes[argument.index];
    case ArgumentKind::scalar:
      return scalar_bits(plan_.scalars[argument.index].dtype, arguments.scalars[argument.index]);
    case ArgumentKind::workspace:
      if (plan_.workspaces[argument.index].bytes == 0) return 0;
      return arguments.workspace + static_cast<std::uint64_t>(workspace_offsets_[argument.index]);
    default:
      return 0;
  }
}

void PreparedProgram::pack(const LaunchPlan& launch, const ArgumentView& arguments,
                           TensorMaps& maps, PackedArguments& packed) const {
  const std::size_t given = launch.arguments.size();
  std::fill(packed.pointers.begin() + given, packed.pointers.end(), zero_parameter.data());
  for (std::size_t i = 0; i < given; ++i) {
    const ArgumentPlan& argument = launch.arguments[i];
    if (argument.kind == ArgumentKind::tensor_map) {
      // What the problem does not have is 128 zero bytes.
      const bool absent = argument.index == ArgumentPlan::kAbsent;
      packed.pointers[i] =
          absent ? static_cast<void*>(zero_parameter.data()) : &maps[argument.index];
    } else {
      // Little-endian: a narrower parameter is read from the low bytes.
      packed.values[i] = argument_bits(argument, arguments);
      packed.pointers[i] = &packed.values[i];
    }
  }
}

bool PreparedProgram::can_start_early() const {
  return plan_.launches.front().waits && std::ranges::none_of(plan_.workspaces, needs_zeros);
}

DriverStatus PreparedProgram::enqueue(CUstream stream, const ArgumentView& arguments,
                                      bool early) const {
  for (std::size_t i = 0; i < plan_.workspaces.size(); ++i) {
    const WorkspacePlan& workspace = plan_.workspaces[i];
    if (!needs_zeros(workspace)) continue;
    const DriverStatus status{
        "cuMemsetD8Async",
        api_.memset_d8_async(arguments.workspace + static_cast<CUdeviceptr>(workspace_offsets_[i]),
                             0, static_cast<std::size_t>(workspace.bytes), stream)};
    if (!status) return status;
  }
  TensorMaps maps;
  if (const DriverStatus status = place_tensor_maps(arguments, maps); !status) return status;
  PackedArguments packed;
  for (std::size_t i = 0; i < launches_.size(); ++i) {
    const LaunchPlan& launch = plan_.launches[i];
    pack(launch, arguments, maps, packed);
    Attributes attributes = launches_[i].attributes;  // the driver wants them writable
    if (early && i == 0 && !launch.programmatic) attributes.add_programmatic();
    CUlaunchConfig config{};
    set_geometry(launch, config);
    config.hStream = stream;
    config.attrs = attributes.list.data();
    config.numAttrs = attributes.count;
    // A CUkernel may stand for a CUfunction: the context is then that of the stream.
    const DriverStatus status{
        "cuLaunchKernelEx",
        api_.launch_kernel_ex(&config, reinterpret_cast<CUfunction>(launches_[i].kernel),
                              packed.pointers.data(), nullptr)};
    if (!status) return status;
  }
  return {};
}

DriverStatus PreparedProgram::append_to(CUgraph graph, CUcontext context,
                                        const ArgumentView& arguments, GraphTail& tail,
                                        std::vector<KernelNode>* kernels, bool early) const {
  for (std::size_t i = 0; i < plan_.workspaces.size(); ++i) {
    const WorkspacePlan& workspace = plan_.workspaces[i];
    if (!needs_zeros(workspace)) continue;
    const bool words = workspace.bytes % 4 == 0;
    CUDA_MEMSET_NODE_PARAMS fill{};
    fill.dst = arguments.workspace + static_cast<CUdeviceptr>(workspace_offsets_[i]);
    fill.elementSize = words ? 4 : 1;
    fill.width = static_cast<std::size_t>(words ? workspace.bytes / 4 : workspace.bytes);
    fill.height = 1;
    CUgraphNode node = nullptr;
    const DriverStatus status{
        "cuGraphAddMemsetNode",
        api_.graph_add_memset_node(&node, graph, &tail.node, tail.node ? 1 : 0, &fill, context)};
    if (!status) return status;
    tail = {node, false, tail.nodes + 1};
  }
  TensorMaps maps;
  if (const DriverStatus status = place_tensor_maps(arguments, maps); !status) return status;
  PackedArguments packed;
  for (std::size_t i = 0; i < launches_.size(); ++i) {
    const LaunchPlan& launch = plan_.launches[i];
    pack(launch, arguments, maps, packed);
    CUDA_KERNEL_NODE_PARAMS params{};
    DriverStatus status{"cuKernelGetFunction",
                        api_.kernel_get_function(&params.func, launches_[i].kernel)};
    if (!status) return status;
    set_geometry(launch, params);
    params.kernelParams = packed.pointers.data();

    // In a graph a programmatic launch is an edge between two kernels, which comes afterwards.
    const bool programmatic = (launch.programmatic || (early && i == 0)) && tail.is_kernel;
    CUgraphNode node = nullptr;
    status = {"cuGraphAddKernelNode",
              api_.graph_add_kernel_node(&node, graph, &tail.node,
                                         tail.node && !programmatic ? 1 : 0, &params)};
    if (!status) return status;
    const Attributes& attributes = launches_[i].attributes;
    for (unsigned int j = 0; j < attributes.of_node; ++j) {
      status = {"cuGraphKernelNodeSetAttribute",
                api_.graph_kernel_node_set_attribute(node, attributes.list[j].id,
                                                     &attributes.list[j].value)};
      if (!status) return status;
    }
    if (programmatic) {
      CUgraphEdgeData edge{};
      edge.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
      edge.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
      status = {"cuGraphAddDependencies",
                api_.graph_add_dependencies(graph, &tail.node, &node, &edge, 1)};
      if (!status) return status;
    }
    tail = {node, true, tail.nodes + 1};
    if (kernels) kernels->push_back({node, params.func});
  }
  return {};
}

DriverStatus PreparedProgram::change(CUgraphExec exec, std::span<const KernelNode> kernels,
                                     const ArgumentView& arguments) const {
  TensorMaps maps;
  if (const DriverStatus status = place_tensor_maps(arguments, maps); !status) return status;
  PackedArguments packed;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const LaunchPlan& launch = plan_.launches[i];
    pack(launch, arguments, maps, packed);
    CUDA_KERNEL_NODE_PARAMS params{};
    params.func = kernels[i].function;
    set_geometry(launch, params);
    params.kernelParams = packed.pointers.data();
    const DriverStatus status{
        "cuGraphExecKernelNodeSetParams",
        api_.graph_exec_kernel_node_set_params(exec, kernels[i].node, &params)};
    if (!status) return status;
  }
  return {};
}

}  // namespace kernwright
