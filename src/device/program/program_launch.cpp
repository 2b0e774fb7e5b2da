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

[[gnu::hot]] PreparedProgram::Frame::Frame(const ArgumentView& view,
                                           std::span<const std::int64_t> numbers)
    : arguments(view) {
  const auto start = [&](Source source, const void* data) {
    sources[static_cast<std::size_t>(source)] = reinterpret_cast<std::uintptr_t>(data);
  };
  start(Source::address, nullptr);
  start(Source::numbers, numbers.data());
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
    const DevicePointer address = prepared.workspace != TensorMapPlan::kInTensor
                                      ? workspace_address(prepared.workspace, frame.arguments)
                                      : frame.arguments.tensors[prepared.tensor];
    if (prepared.address_word && address % kTensorMapAlignment == 0) {
      map.opaque[*prepared.address_word] = address;
      continue;
    }
    const DriverStatus status{
        "cuTensorMapReplaceAddress",
        form_->api.tensor_map_replace_address(&map, reinterpret_cast<void*>(address))};
    if (!status) return status;
  }
  return {};
}

DevicePointer PreparedProgram::workspace_offset(std::size_t index) const {
  std::int64_t offset = 0;
  for (const std::int64_t bytes : numbers_.first(index)) offset += workspace_room(bytes);
  return static_cast<DevicePointer>(offset);
}

DevicePointer PreparedProgram::workspace_address(std::size_t index,
                                                 const ArgumentView& arguments) const {
  DevicePointer at = arguments.zeros;
  for (const std::size_t kept : form_->kept_zero) {
    if (at == 0) break;
    if (kept == index) return at;
    at += room_of(kept);
  }
  return arguments.workspace + workspace_offset(index);
}

std::size_t PreparedProgram::kept_zero_bytes() const {
  std::size_t bytes = 0;
  for (const std::size_t kept : form_->kept_zero) bytes += room_of(kept);
  return bytes;
}

[[gnu::hot]] std::uint64_t PreparedProgram::compute(const PreparedForm::Computed& argument,
                                                    const ArgumentView& arguments,
                                                    Start start) const {
  if (depends_on_start(argument.kind)) {
    const bool given = argument.kind == ArgumentKind::early ? start.early : start.ahead;
    return given ? static_cast<std::uint64_t>(numbers_[argument.index]) : 0;
  }
  if (argument.kind == ArgumentKind::scalar) {
    return encode(argument.dtype, arguments.scalars[argument.index]);
  }
  const bool is_empty = workspace_bytes(argument.index) == 0;
  return is_empty ? 0 : workspace_address(argument.index, arguments);
}

[[gnu::hot]] CUlaunchConfig PreparedProgram::config_of(const PreparedForm::Launch& launch) const {
  CUlaunchConfig config = launch.config;
  config.gridDimX = static_cast<unsigned>(numbers_[launch.grid]);
  config.gridDimY = static_cast<unsigned>(numbers_[launch.grid + 1]);
  config.gridDimZ = static_cast<unsigned>(numbers_[launch.grid + 2]);
  config.sharedMemBytes = static_cast<unsigned>(numbers_[launch.grid + PlanForm::kDynamicSmem]);
  return config;
}

[[gnu::hot]] void PreparedProgram::place_parameters(const PreparedForm::Launch& launch,
                                                    Frame& frame, Start start) const {
  for (std::size_t i = 0; i < launch.computed.size(); ++i) {
    frame.computed[i] = compute(launch.computed[i], frame.arguments, start);
  }
  void** place = frame.parameters.data();
  for (const auto [source, offset] : launch.parameters) {
    *place++ = reinterpret_cast<void*>(frame.sources[static_cast<std::size_t>(source)] + offset);
  }
}

bool PreparedProgram::can_start_early() const {
  return form_->plan->plan.launches.front().waits &&
         std::ranges::none_of(form_->zeroed,
                              [this](std::size_t index) { return workspace_bytes(index) > 0; });
}

DriverStatus PreparedProgram::zero(CUstream stream, DevicePointer workspace,
                                   const std::vector<std::size_t>& workspaces) const {
  for (const std::size_t index : workspaces) {
    if (workspace_bytes(index) == 0) continue;
    const DriverStatus status{"cuMemsetD8Async",
                              form_->api.memset_d8_async(workspace + workspace_offset(index), 0,
                                                         workspace_bytes(index), stream)};
    if (!status) return status;
  }
  return {};
}

DriverStatus PreparedProgram::zero_kept(CUstream stream, DevicePointer workspace) const {
  return zero(stream, workspace, form_->kept_zero);
}

[[gnu::hot]] DriverStatus PreparedProgram::enqueue(CUstream stream, const ArgumentView& arguments,
                                                   bool early, bool ahead) const {
  DriverStatus zeroed = zero(stream, arguments.workspace, form_->zeroed);
  if (zeroed && arguments.zeros == 0) zeroed = zero_kept(stream, arguments.workspace);
  if (!zeroed) return zeroed;
  Frame frame(arguments, numbers_);
  if (const DriverStatus status = place_tensor_maps(frame); !status) return status;
  for (std::size_t i = 0; i < form_->launches.size(); ++i) {
    const PreparedForm::Launch& launch = form_->launches[i];
    const bool programmatic = i == 0 ? early : launch.programmatic;
    place_parameters(launch, frame, start_of(i, programmatic, ahead));
    CUlaunchConfig config = config_of(launch);
    config.hStream = stream;
    config.numAttrs = launch.node_attributes + (programmatic ? 1 : 0);
    std::array<CUlaunchAttribute, PreparedForm::kMaxAttributes>
        attributes;  // the driver wants them writable
    std::copy_n(launch.attributes.begin(), config.numAttrs, attributes.begin());
    config.attrs = attributes.data();
    // A CUkernel may be passed as a CUfunction; the context is then the stream's.
    const DriverStatus status{
        "cuLaunchKernelEx",
        form_->api.launch_kernel_ex(&config, reinterpret_cast<CUfunction>(launch.kernel),
                                    frame.parameters.data(), nullptr)};
    if (!status) return status;
  }
  return {};
}

DriverStatus PreparedProgram::append_to(CUgraph graph, CUcontext context,
                                        const ArgumentView& arguments, GraphTail& tail,
                                        std::vector<KernelNode>* kernels, bool early,
                                        bool ahead) const {
  for (const std::size_t index : form_->zeroed) {
    const std::size_t bytes = workspace_bytes(index);
    if (bytes == 0) continue;
    const bool words = bytes % 4 == 0;
    CUDA_MEMSET_NODE_PARAMS fill{};
    fill.dst = arguments.workspace + workspace_offset(index);
    fill.elementSize = words ? 4 : 1;
    fill.width = words ? bytes / 4 : bytes;
    fill.height = 1;
    CUgraphNode node = nullptr;
    const DriverStatus status{"cuGraphAddMemsetNode",
                              form_->api.graph_add_memset_node(&node, graph, &tail.node,
                                                               tail.node ? 1 : 0, &fill, context)};
    if (!status) return status;
    tail = {node, false, tail.nodes + 1};
  }
  Frame frame(arguments, numbers_);
  if (const DriverStatus status = place_tensor_maps(frame); !status) return status;
  for (std::size_t i = 0; i < form_->launches.size(); ++i) {
    const PreparedForm::Launch& launch = form_->launches[i];
    // In a graph a programmatic launch is an edge between two kernels, which is added afterwards.
    const bool programmatic = (i == 0 ? early : launch.programmatic) && tail.is_kernel;
    place_parameters(launch, frame, start_of(i, programmatic, ahead));
    CUDA_KERNEL_NODE_PARAMS params = node_params(config_of(launch));
    DriverStatus status{"cuKernelGetFunction",
                        form_->api.kernel_get_function(&params.func, launch.kernel)};
    if (!status) return status;
    params.kernelParams = frame.parameters.data();

    CUgraphNode node = nullptr;
    status = {"cuGraphAddKernelNode",
              form_->api.graph_add_kernel_node(&node, graph, &tail.node,
                                               tail.node && !programmatic ? 1 : 0, &params)};
    if (!status) return status;
    for (unsigned int j = 0; j < launch.node_attributes; ++j) {
      const CUlaunchAttribute& attribute = launch.attributes[j];
      status = {"cuGraphKernelNodeSetAttribute",
                form_->api.graph_kernel_node_set_attribute(node, attribute.id, &attribute.value)};
      if (!status) return status;
    }
    if (programmatic) {
      CUgraphEdgeData edge{};
      edge.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
      edge.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
      status = {"cuGraphAddDependencies",
                form_->api.graph_add_dependencies(graph, &tail.node, &node, &edge, 1)};
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
  Frame frame(arguments, numbers_);
  if (const DriverStatus status = place_tensor_maps(frame); !status) return status;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    place_parameters(form_->launches[i], frame, start_of(i, kernels[i].early, ahead));
    CUDA_KERNEL_NODE_PARAMS params = kernels[i].params;
    params.kernelParams = frame.parameters.data();
    const DriverStatus status{
        "cuGraphExecKernelNodeSetParams",
        form_->api.graph_exec_kernel_node_set_params(exec, kernels[i].node, &params)};
    if (!status) return status;
  }
  return {};
}

}  // namespace kernwright
