#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "device/device.h"
#include "device/driver/driver.h"
#include "device/program/loaded_library.h"
#include "device/program/residency.h"
#include <kernwright/result.h>

namespace kernwright {

/// `LaunchArguments` without ownership.
struct ArgumentView {
  ArgumentView(const LaunchArguments& arguments)
      : tensors(arguments.tensors),
        scalars(arguments.scalars),
        workspace(arguments.workspace),
        references(arguments.references),
        magnitudes(arguments.magnitudes) {}
  ArgumentView(std::span<const DevicePointer> tensor_pointers,
               std::span<const double> scalar_values, DevicePointer workspace_pointer)
      : tensors(tensor_pointers), scalars(scalar_values), workspace(workspace_pointer) {}

  std::span<const DevicePointer> tensors;
  std::span<const double> scalars;
  DevicePointer workspace = 0;
  std::span<const DevicePointer> references;
  std::span<const DevicePointer> magnitudes;
};

/// Returns true for arguments that carry their value in the plan itself.
inline bool carries_value(const ArgumentPlan& argument) {
  return argument.kind == ArgumentKind::int32 || argument.kind == ArgumentKind::int64 ||
         depends_on_start(argument.kind);
}

/// Checks counts, alignments, and that there is a workspace if one is needed. Errors:
/// `invalid_argument` with the tensor and both values. Allocates only on failure.
Result<void> check_arguments(const ExecutionPlan& plan, const ArgumentView& arguments);

/// The last node of a graph under construction, whose nodes follow each other.
struct GraphTail {
  CUgraphNode node = nullptr;
  bool is_kernel = false;
  int nodes = 0;  ///< in the whole graph
};

/// One launch of a program as a node of a graph, with the parameters that arguments do not change.
struct KernelNode {
  CUgraphNode node = nullptr;
  CUDA_KERNEL_NODE_PARAMS params{};
  bool early = false;  ///< a programmatic edge leads to it
};

/// A loaded cubin that is prepared for one execution plan. Everything is prepared that does not
/// change between launches: kernels are resolved and their attributes set, limits and parameter
/// sizes are checked, tensor maps are encoded, and the source of each parameter is known. It is
/// immutable and bound to no context, so any thread may launch it. It makes the launches of streams
/// and of graphs.
class PreparedProgram {
 public:
  static constexpr std::size_t kMaxArguments = 64;  ///< of one kernel, and its parameters
  static constexpr std::size_t kMaxTensorMaps = 8;  ///< of one plan

  /// Prepares for `device`. If the plan has tensor maps, a context must be current. Errors:
  /// `invalid_argument` with both values if plan, library and GPU do not fit; `device` with the
  /// driver's message, and then `status` holds the call.
  static Result<std::unique_ptr<PreparedProgram>> load(const DriverApi& api, CUdevice device,
                                                       std::shared_ptr<LoadedLibrary> library,
                                                       std::shared_ptr<const ExecutionPlan> plan,
                                                       DriverStatus& status);
  /// Prepares the same library for another plan. Asks the driver for nothing that both plans share.
  /// Errors: as for `load`.
  Result<std::unique_ptr<PreparedProgram>> with(std::shared_ptr<const ExecutionPlan> plan,
                                                DriverStatus& status) const;

  PreparedProgram(const PreparedProgram&) = delete;  // parameters are read from its plan
  PreparedProgram& operator=(const PreparedProgram&) = delete;

  const ExecutionPlan& plan() const { return *plan_; }
  CUdevice device() const { return device_; }
  const std::shared_ptr<LoadedLibrary>& library() const { return library_; }

  /// Zeroes the workspaces that the plan says must be zeroed or kept zero, and launches, all on
  /// `stream`. `arguments` must have passed `check_arguments`. With `early` the first launch may
  /// start before the previous work of the stream has ended; its kernel then waits itself
  /// (`can_start_early`). With `ahead` nothing that still runs then may write the tensors which
  /// that launch reads ahead of its wait, and it reads them ahead.
  DriverStatus enqueue(CUstream stream, const ArgumentView& arguments, bool early,
                       bool ahead = false) const;

  /// Appends the same work to the graph that ends in `tail`. `context` must be current. `kernels`,
  /// if it is not null, gets one node per launch. Whoever launches the graph calls `zero_kept`
  /// before the first launch.
  DriverStatus append_to(CUgraph graph, CUcontext context, const ArgumentView& arguments,
                         GraphTail& tail, std::vector<KernelNode>* kernels, bool early,
                         bool ahead = false) const;

  /// Zeroes the workspaces in the buffer at `workspace` that are kept zero.
  DriverStatus zero_kept(CUstream stream, DevicePointer workspace) const;

  /// Returns whether its first work is a kernel that waits for its predecessor itself.
  bool can_start_early() const;
  /// Returns whether its plan makes it start early outside of a chain too.
  bool starts_early() const { return !launches_.empty() && launches_.front().programmatic; }

  /// Returns what the blocks of its first launch take, and the blocks of its last launch. Zeros if
  /// the driver does not say.
  BlockDemand first_demand() const { return demand(0); }
  BlockDemand last_demand() const { return demand(launches_.size() - 1); }
  /// Returns the multiprocessors of the GPU that it is loaded for.
  Multiprocessors multiprocessors() const;

  /// Changes the tensors and scalars of later launches of `exec`. `kernels` are this program's
  /// nodes of the graph that `exec` was made from; that graph is not changed. The workspace must be
  /// the one that was passed to `append_to`.
  DriverStatus change(CUgraphExec exec, std::span<const KernelNode> kernels,
                      const ArgumentView& arguments, bool ahead = false) const;

  /// Makes the destructor leave the library loaded, see `DriverHandle::abandon`.
  void abandon() { library_->abandon(); }

 private:
  static constexpr std::size_t kMaxAttributes = 3;  ///< cluster, cooperative, programmatic

  /// The place from which a parameter of a launch is read.
  enum class Source { address, tensors, references, magnitudes, tensor_maps, computed };
  static constexpr std::size_t kSources = 6;
  struct Parameter {
    Source source = Source::address;
    std::uintptr_t offset = 0;  ///< bytes; of `address` the address itself, in this program
  };
  struct PreparedLaunch {
    CUkernel kernel = nullptr;
    CUlaunchConfig config{};           ///< without stream and attributes
    unsigned int node_attributes = 0;  ///< those that a graph's node has too; programmatic follows
    bool programmatic = false;
    std::vector<Parameter> parameters;   ///< as many as the kernel declares
    std::vector<ArgumentPlan> computed;  ///< values that are computed at each launch
    std::array<CUlaunchAttribute, kMaxAttributes> attributes{};
  };
  struct PreparedTensorMap {
    CUtensorMap encoded{};  ///< with an address that is never used
    std::optional<std::size_t> address_word;
    std::size_t tensor = 0;
    std::optional<DevicePointer> workspace_offset;  ///< of a map into the workspace
  };
  struct ZeroedWorkspace {
    DevicePointer offset = 0;
    std::size_t bytes = 0;
  };

  /// The values of a launch while it is made, on the stack.
  struct Frame {
    explicit Frame(const ArgumentView& view);

    const ArgumentView& arguments;
    std::array<std::uintptr_t, kSources> sources;
    std::array<std::uint64_t, kMaxArguments> computed;
    std::array<void*, kMaxArguments> parameters;
    std::array<CUtensorMap, kMaxTensorMaps> tensor_maps;
  };

  PreparedProgram(const DriverApi& api, CUdevice device, std::shared_ptr<const ExecutionPlan> plan,
                  std::shared_ptr<LoadedLibrary> library)
      : api_(api), device_(device), plan_(std::move(plan)), library_(std::move(library)) {}

  BlockDemand demand(std::size_t launch) const;
  /// `like` is a program of the same library, or null.
  Result<void> prepare(const PreparedProgram* like, DriverStatus& status);
  Result<PreparedTensorMap> prepare_tensor_map(std::size_t number, const PreparedProgram* like,
                                               DriverStatus& status) const;
  Result<void> prepare_launch(const LaunchPlan& launch, DriverStatus& status);
  void prepare_parameters(const LaunchPlan& launch, PreparedLaunch& prepared) const;
  Result<void> set_kernel_attributes(const LaunchPlan& launch, CUkernel kernel,
                                     DriverStatus& status) const;

  DriverStatus place_tensor_maps(Frame& frame) const;
  /// The start of a launch, on which some of its arguments depend.
  struct Start {
    bool early = false;
    bool ahead = false;
  };
  /// Returns the start of launch number `launch`. Only the first launch reads ahead, because the
  /// data that a later one would read ahead may come from launches before it in this program.
  static Start start_of(std::size_t launch, bool programmatic, bool ahead) {
    return {programmatic, programmatic && ahead && launch == 0};
  }
  void place_parameters(const PreparedLaunch& launch, Frame& frame, Start start) const;
  std::uint64_t compute(const ArgumentPlan& argument, const ArgumentView& arguments,
                        Start start) const;
  DriverStatus zero(CUstream stream, DevicePointer workspace,
                    const std::vector<ZeroedWorkspace>& parts) const;

  // The members that every launch reads are side by side.
  const DriverApi& api_;
  std::vector<ZeroedWorkspace> zeroed_;
  std::vector<ZeroedWorkspace> kept_zero_;
  std::vector<PreparedTensorMap> tensor_maps_;
  std::vector<PreparedLaunch> launches_;
  std::vector<DevicePointer> workspace_offsets_;
  CUdevice device_;
  std::shared_ptr<const ExecutionPlan> plan_;
  std::shared_ptr<LoadedLibrary> library_;
};

}  // namespace kernwright
