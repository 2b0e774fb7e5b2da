#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "device/driver.h"
#include "device/handles.h"
#include <kernwright/result.h>

namespace kernwright {

/// `LaunchArguments` without ownership.
struct ArgumentView {
  ArgumentView(const LaunchArguments& arguments);
  ArgumentView(std::span<const DevicePointer> tensors, std::span<const double> scalars,
               DevicePointer workspace);

  std::span<const DevicePointer> tensors;
  std::span<const double> scalars;
  DevicePointer workspace = 0;
  std::span<const DevicePointer> references;
  std::span<const DevicePointer> magnitudes;
};

/// True for arguments that carry their value in the plan itself.
inline bool carries_value(const ArgumentPlan& argument) {
  return argument.kind == ArgumentKind::int32 || argument.kind == ArgumentKind::int64;
}

/// Checks counts, alignments and the presence of a workspace. Errors: `invalid_argument` naming the
/// tensor and both values. Allocates only on failure.
Result<void> check_arguments(const ExecutionPlan& plan, const ArgumentView& arguments);

/// The last node of a graph under construction, all of whose nodes follow each other.
struct GraphTail {
  CUgraphNode node = nullptr;
  bool is_kernel = false;
  int nodes = 0;  ///< of the whole graph
};

/// One launch of a program as a node of a graph.
struct KernelNode {
  CUgraphNode node = nullptr;
  CUfunction function = nullptr;
};

/// A cubin loaded for one execution plan, with everything prepared that does not change between
/// launches: kernels resolved, their attributes set, limits and parameter sizes checked, tensor
/// maps encoded. Immutable and bound to no context, so that any thread may launch it; a launch
/// builds its arguments on the stack. Streams and graphs get the same launches from here.
class PreparedProgram {
 public:
  static constexpr std::size_t kMaxArguments = 32;  ///< of one kernel
  static constexpr std::size_t kMaxTensorMaps = 8;  ///< of one plan

  /// Loads for `device`. A context must be current where the plan has tensor maps. Errors:
  /// `invalid_argument` where plan, cubin and GPU do not fit, with both values; `device` with the
  /// driver's words, and then `status` holds the call.
  static Result<std::unique_ptr<PreparedProgram>> load(const DriverApi& api, CUdevice device,
                                                       std::string_view cubin,
                                                       const ExecutionPlan& plan,
                                                       DriverStatus& status);

  const ExecutionPlan& plan() const { return plan_; }

  /// Zeroes the workspaces that ask for it and launches, all on `stream`. `arguments` must have
  /// passed `check_arguments`. `early`: the first launch may start before what precedes it on the
  /// stream has ended; its kernel waits (`can_start_early`).
  DriverStatus enqueue(CUstream stream, const ArgumentView& arguments, bool early = false) const;

  /// Appends the same work to the graph that ends in `tail`. `context` must be current. Where
  /// `kernels` is given it gets one node per launch.
  DriverStatus append_to(CUgraph graph, CUcontext context, const ArgumentView& arguments,
                         GraphTail& tail, std::vector<KernelNode>* kernels = nullptr,
                         bool early = false) const;

  /// Whether the first thing that it does is a kernel that waits for its predecessor itself.
  bool can_start_early() const;

  /// Gives later launches of `exec` other tensors and scalars. `kernels` are this program's nodes
  /// of the graph that `exec` was made from; that graph itself is left as it is. The workspace must
  /// be that of `append_to`.
  DriverStatus change(CUgraphExec exec, std::span<const KernelNode> kernels,
                      const ArgumentView& arguments) const;

  /// Leaves the library loaded on destruction, see `DriverHandle::abandon`.
  void abandon() { library_.abandon(); }

 private:
  struct Attributes {
    std::array<CUlaunchAttribute, 3> list{};  ///< cluster dimension, cooperative, programmatic
    unsigned int of_node = 0;                 ///< without the last, which is an edge in a graph
    unsigned int count = 0;

    void add_programmatic() {
      CUlaunchAttribute& attribute = list[count++];
      attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
      attribute.value.programmaticStreamSerializationAllowed = 1;
    }
  };
  struct PreparedLaunch {
    CUkernel kernel = nullptr;
    Attributes attributes;
  };
  using TensorMaps = std::array<CUtensorMap, kMaxTensorMaps>;

  /// Values of one launch's arguments and the pointers that the driver reads them through.
  struct PackedArguments {
    std::array<std::uint64_t, kMaxArguments> values;
    std::array<void*, kMaxArguments + 1> pointers;
  };

  PreparedProgram(const DriverApi& api, CUdevice device, const ExecutionPlan& plan)
      : api_(api), device_(device), plan_(plan) {}

  Result<void> prepare(std::string_view cubin, DriverStatus& status);
  Result<void> prepare_launch(const LaunchPlan& launch, DriverStatus& status);
  Result<void> check_limits(const LaunchPlan& launch, CUkernel kernel, DriverStatus& status) const;
  Result<void> check_parameters(const LaunchPlan& launch, CUkernel kernel,
                                DriverStatus& status) const;
  Result<void> set_kernel_attributes(const LaunchPlan& launch, CUkernel kernel,
                                     DriverStatus& status) const;
  std::size_t argument_bytes(const ArgumentPlan& argument) const;

  DriverStatus place_tensor_maps(const ArgumentView& arguments, TensorMaps& maps) const;
  void pack(const LaunchPlan& launch, const ArgumentView& arguments, TensorMaps& maps,
            PackedArguments& packed) const;
  std::uint64_t argument_bits(const ArgumentPlan& argument, const ArgumentView& arguments) const;

  const DriverApi& api_;
  CUdevice device_;
  ExecutionPlan plan_;
  LibraryHandle library_;
  std::vector<PreparedLaunch> launches_;
  std::vector<std::int64_t> workspace_offsets_;
  std::vector<CUtensorMap> tensor_maps_;                   ///< with an address that is never used
  std::vector<std::optional<std::size_t>> address_words_;  ///< of the tensor maps
};

}  // namespace kernwright
