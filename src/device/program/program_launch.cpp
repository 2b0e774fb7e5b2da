#include <algorithm>
#include <array>

#include "device/program/prepared_program.h"
#include "model/operation/dtype_format.h"

namespace kernwright {
namespace {

// The alignment of addresses in tensor maps; the driver refuses others.
constexpr DevicePointer kTensorMapAlignment = 16;

/// Returns the grid, block and shared memory of a launch, without function and parameters.
CUDA_KERNEL_NODE_PARAMS node_params(const CUlaunchConfig& config) {
  CUDA_KERNEL_NODE_PARAMS params{};
  params.gridDimX = config.gridDimX;
  params.gridDimY = config.gridDimY;
  params.gridDimZ = config.gridDimZ;
  params.blockDimX = config.blockDimX;
  params.blockDimY = config.blockDimY;
  params.blockDimZ = config.blockDimZ;
  params.sharedMemBytes = config.sharedMemBytes;
  return params;
}

}  // namespace

[[gnu::hot]] PreparedProgram::Frame::Frame(const ArgumentView& view) : arguments(view) {
  const auto start = [&](Source source, const void* data) {
    sources[static_cast<std::size_t>(source)] = reinterpret_cast<std::uintptr_t>(data);
  };
  start(Source::address, nullptr);
  start(Source::tensors, arguments.tensors.data());
  start(Source::references, arguments.references.data());
  start(Source::magnitudes, arguments.magnitudes.data());
  start(Source::tensor_maps, tensor_maps.data());
  start(Source::computed, computed.data());
}

[[gnu::hot]] DriverStatus PreparedProgram::place_tensor_maps(Frame& frame) const {
  for (std::size_t i = 0; i < tensor_maps_.size(); ++i) {
    const PreparedTensorMap& prepared = tensor_maps_[i];
    CUtensorMap& map = frame.tensor_maps[i];
    map = prepared.encoded;
    const DevicePointer address = prepared.workspace_offset
                                      ? frame.arguments.workspace + *prepared.workspace_offset
                                      : frame.arguments.tensors[prepared.tensor];
    if (prepared.address_word && address % kTensorMapAlignment == 0) {
      map.opaque[*prepared.address_word] = address;
      continue;
    }
    const DriverStatus status{
        "cuTensorMapReplaceAddress",
        api_.tensor_map_replace_address(&map, reinterpret_cast<void*>(address))};
    if (!status) return status;
  }
  return {};
}

[[gnu::hot]] std::uint64_t PreparedProgram::compute(const ArgumentPlan& argument,
                                                    const ArgumentView& arguments,
                                                    Start start) const {
  if (depends_on_start(argument.kind)) {
    const bool given = argument.kind == ArgumentKind::early ? start.early : start.ahead;
    return given ? static_cast<std::uint64_t>(argument.value) : 0;
  }
  return argument.kind == ArgumentKind::scalar
             ? encode(plan_->scalars[argument.index].dtype, arguments.scalars[argument.index])
             : arguments.workspace + workspace_offsets_[argument.index];
}

[[gnu::hot]] void PreparedProgram::place_parameters(const PreparedLaunch& launch, Frame& frame,
                                                    Start start) const {
  for (std::size_t i = 0; i < launch.computed.size(); ++i) {
    frame.computed[i] = compute(launch.computed[i], frame.arguments, start);
  }
  void** place = frame.parameters.data();
  for (const auto [source, offset] : launch.parameters) {
    *place++ = reinterpret_cast<void*>(frame.sources[static_cast<std::size_t>(source)] + offset);
  }
}

bool PreparedProgram::can_start_early() const {
  return plan_->launches.front().waits && zeroed_.empty();
}

DriverStatus PreparedProgram::zero(CUstream stream, DevicePointer workspace,
                                   const std::vector<ZeroedWorkspace>& parts) const {
  for (const ZeroedWorkspace& part : parts) {
    const DriverStatus status{"cuMemsetD8Async",
                              api_.memset_d8_async(workspace + part.offset, 0, part.bytes, stream)};
    if (!status) return status;
  }
  return {};
}

DriverStatus PreparedProgram::zero_kept(CUstream stream, DevicePointer workspace) const {
  return zero(stream, workspace, kept_zero_);
}

[[gnu::hot]] DriverStatus PreparedProgram::enqueue(CUstream stream, const ArgumentView& arguments,
                                                   bool early, bool ahead) const {
  for (const auto* parts : {&zeroed_, &kept_zero_}) {
    const DriverStatus status = zero(stream, arguments.workspace, *parts);
    if (!status) return status;
  }
  Frame frame(arguments);
  if (const DriverStatus status = place_tensor_maps(frame); !status) return status;
  for (std::size_t i = 0; i < launches_.size(); ++i) {
    const PreparedLaunch& launch = launches_[i];
    const bool programmatic = i == 0 ? early : launch.programmatic;
    place_parameters(launch, frame, start_of(i, programmatic, ahead));
    CUlaunchConfig config = launch.config;
    config.hStream = stream;
    config.numAttrs = launch.node_attributes + (programmatic ? 1 : 0);
    std::array<CUlaunchAttribute, kMaxAttributes> attributes;  // the driver wants them writable
    std::copy_n(launch.attributes.begin(), config.numAttrs, attributes.begin());
    config.attrs = attributes.data();
    // A CUkernel may be passed as a CUfunction; the context is then the stream's.
    const DriverStatus status{
        "cuLaunchKernelEx",
        api_.launch_kernel_ex(&config, reinterpret_cast<CUfunction>(launch.kernel),
                              frame.parameters.data(), nullptr)};
    if (!status) return status;
  }
  return {};
}

DriverStatus PreparedProgram::append_to(CUgraph graph, CUcontext context,
                                        const ArgumentView& arguments, GraphTail& tail,
                                        std::vector<KernelNode>* kernels, bool early,
                                        bool ahead) const {
  for (const ZeroedWorkspace& workspace : zeroed_) {
    const bool words = workspace.bytes % 4 == 0;
    CUDA_MEMSET_NODE_PARAMS fill{};
    fill.dst = arguments.workspace + workspace.offset;
    fill.elementSize = words ? 4 : 1;
    fill.width = words ? workspace.bytes / 4 : workspace.bytes;
    fill.height = 1;
    CUgraphNode node = nullptr;
    const DriverStatus status{
        "cuGraphAddMemsetNode",
        api_.graph_add_memset_node(&node, graph, &tail.node, tail.node ? 1 : 0, &fill, context)};
    if (!status) return status;
    tail = {node, false, tail.nodes + 1};
  }
  Frame frame(arguments);
  if (const DriverStatus status = place_tensor_maps(frame); !status) return status;
  for (std::size_t i = 0; i < launches_.size(); ++i) {
    const PreparedLaunch& launch = launches_[i];
    // In a graph a programmatic launch is an edge between two kernels, which is added afterwards.
    const bool programmatic = (i == 0 ? early : launch.programmatic) && tail.is_kernel;
    place_parameters(launch, frame, start_of(i, programmatic, ahead));
    CUDA_KERNEL_NODE_PARAMS params = node_params(launch.config);
    DriverStatus status{"cuKernelGetFunction",
                        api_.kernel_get_function(&params.func, launch.kernel)};
    if (!status) return status;
    params.kernelParams = frame.parameters.data();

    CUgraphNode node = nullptr;
    status = {"cuGraphAddKernelNode",
              api_.graph_add_kernel_node(&node, graph, &tail.node,
                                         tail.node && !programmatic ? 1 : 0, &params)};
    if (!status) return status;
    for (unsigned int j = 0; j < launch.node_attributes; ++j) {
      const CUlaunchAttribute& attribute = launch.attributes[j];
      status = {"cuGraphKernelNodeSetAttribute",
                api_.graph_kernel_node_set_attribute(node, attribute.id, &attribute.value)};
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
    if (kernels) kernels->push_back({node, params, programmatic});
  }
  return {};
}

[[gnu::hot]] DriverStatus PreparedProgram::change(CUgraphExec exec,
                                                  std::span<const KernelNode> kernels,
                                                  const ArgumentView& arguments, bool ahead) const {
  Frame frame(arguments);
  if (const DriverStatus status = place_tensor_maps(frame); !status) return status;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    place_parameters(launches_[i], frame, start_of(i, kernels[i].early, ahead));
    CUDA_KERNEL_NODE_PARAMS params = kernels[i].params;
    params.kernelParams = frame.parameters.data();
    const DriverStatus status{
        "cuGraphExecKernelNodeSetParams",
        api_.graph_exec_kernel_node_set_params(exec, kernels[i].node, &params)};
    if (!status) return status;
  }
  return {};
}

}  // namespace kernwright
