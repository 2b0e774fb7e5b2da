#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "device/device.h"
#include "device/driver/driver.h"
#include "device/program/loaded_library.h"
#include "device/program/prepared_form.h"
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
               std::span<const double> scalar_values, DevicePointer workspace_pointer,
               DevicePointer zeros_pointer = 0)
      : tensors(tensor_pointers),
        scalars(scalar_values),
        workspace(workspace_pointer),
        zeros(zeros_pointer) {}

  std::span<const DevicePointer> tensors;
  std::span<const double> scalars;
  DevicePointer workspace = 0;
  DevicePointer zeros = 0;  ///< in place of the workspaces that are kept zero, if it is not 0
  std::span<const DevicePointer> references;
  std::span<const DevicePointer> magnitudes;
};

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

/// A loaded cubin that is prepared for one plan: a prepared form, with tensor maps that are encoded
/// for the plan's numbers. It is immutable and bound to no context, so any thread may launch it. It
/// makes the launches of streams and of graphs.
class PreparedProgram {
 public:
  static constexpr std::size_t kMaxArguments = PreparedForm::kMaxArguments;
  static constexpr std::size_t kMaxTensorMaps = PreparedForm::kMaxTensorMaps;

  /// Prepares for `device`. If the plan has tensor maps, a context must be current. Errors:
  /// `invalid_argument` with both values if plan, library and GPU do not fit; `device` with the
  /// driver's message, and then `status` holds the call.
  static Result<std::unique_ptr<PreparedProgram>> load(const DriverApi& api, CUdevice device,
                                                       std::shared_ptr<LoadedLibrary> library,
                                                       std::shared_ptr<const CompactPlan> plan,
                                                       DriverStatus& status);
  /// Prepares the same library for another plan. Asks the driver for nothing that both plans share.
  /// Errors: as for `load`.
  Result<std::unique_ptr<PreparedProgram>> with(std::shared_ptr<const CompactPlan> plan,
                                                DriverStatus& status) const;
  /// Returns whether `with` asks the driver for something.
  bool asks_for(const CompactPlan& plan) const;

  PreparedProgram(const PreparedProgram&) = delete;
  PreparedProgram& operator=(const PreparedProgram&) = delete;

  const ExecutionPlan& plan() const { return plan_->whole(); }
  CUdevice device() const { return form_->device; }
  const std::shared_ptr<LoadedLibrary>& library() const { return form_->library; }

  /// Zeroes the workspaces that the plan says must be zeroed or, without `arguments.zeros`, kept
  /// zero, and launches, all on `stream`. `arguments` must have passed `check_arguments`. With
  /// `early` the first launch may start before the previous work of the stream has ended; its
  /// kernel then waits itself
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

  /// Returns the bytes of `ArgumentView::zeros`.
  std::size_t kept_zero_bytes() const;
  /// Zeroes the workspaces in the buffer at `workspace` that are kept zero.
  DriverStatus zero_kept(CUstream stream, DevicePointer workspace) const;

  /// Returns whether its first work is a kernel that waits for its predecessor itself.
  bool can_start_early() const;
  /// Returns whether its plan makes it start early outside of a chain too.
  bool starts_early() const {
    return !form_->launches.empty() && form_->launches.front().programmatic;
  }

  /// Returns what the blocks of its first launch take, and the blocks of its last launch. Zeros if
  /// the driver does not say.
  BlockDemand first_demand() const { return demand(0); }
  BlockDemand last_demand() const { return demand(form_->launches.size() - 1); }
  /// Returns the multiprocessors of the GPU that it is loaded for.
  Multiprocessors multiprocessors() const;

  /// Changes the tensors and scalars of later launches of `exec`. `kernels` are this program's
  /// nodes of the graph that `exec` was made from; that graph is not changed. The workspace must be
  /// the one that was passed to `append_to`.
  DriverStatus change(CUgraphExec exec, std::span<const KernelNode> kernels,
                      const ArgumentView& arguments, bool ahead = false) const;

  /// Makes the destructor leave the library loaded, see `DriverHandle::abandon`.
  void abandon() { form_->library->abandon(); }

 private:
  using Source = PreparedForm::Source;

  struct PreparedTensorMap {
    CUtensorMap encoded{};  ///< with an address that is never used
    std::optional<std::size_t> address_word;
    std::size_t tensor = 0;
    std::size_t workspace = TensorMapPlan::kInTensor;  ///< of a map into the workspace
  };

  /// The values of a launch while it is made, on the stack.
  struct Frame {
    Frame(const ArgumentView& view, std::span<const std::int64_t> numbers);

    const ArgumentView& arguments;
    std::array<std::uintptr_t, PreparedForm::kSources> sources;
    std::array<std::uint64_t, kMaxArguments> computed;
    std::array<void*, kMaxArguments> parameters;
    std::array<CUtensorMap, kMaxTensorMaps> tensor_maps;
  };

  PreparedProgram(std::shared_ptr<const PreparedForm> form, std::shared_ptr<const CompactPlan> plan)
      : form_(std::move(form)), plan_(std::move(plan)), numbers_(plan_->numbers()) {}

  BlockDemand demand(std::size_t launch) const;
  /// Allows the kernels the shared memory that the plan asks for beyond its form's.
  Result<void> allow_shared_memory(DriverStatus& status) const;
  /// Encodes the tensor maps. `like` is a program of the same library, or null.
  Result<void> encode_maps(const PreparedProgram* like, DriverStatus& status);
  /// Returns the encoded map that another plan's map number `map` has too, or null.
  const PreparedTensorMap* known_map(const CompactPlan& plan, std::size_t map) const;

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
  /// Returns the configuration of a launch, without stream and attributes.
  CUlaunchConfig config_of(const PreparedForm::Launch& launch) const;
  void place_parameters(const PreparedForm::Launch& launch, Frame& frame, Start start) const;
  std::uint64_t compute(const PreparedForm::Computed& argument, const ArgumentView& arguments,
                        Start start) const;
  /// Returns the bytes of workspace number `index`.
  std::size_t workspace_bytes(std::size_t index) const {
    return static_cast<std::size_t>(numbers_[index]);
  }
  /// Returns these bytes with those behind them up to the next workspace.
  std::size_t room_of(std::size_t index) const {
    return static_cast<std::size_t>(workspace_room(numbers_[index]));
  }
  DevicePointer workspace_offset(std::size_t index) const;
  DevicePointer workspace_address(std::size_t index, const ArgumentView& arguments) const;
  DriverStatus zero(CUstream stream, DevicePointer workspace,
                    const std::vector<std::size_t>& workspaces) const;

  std::shared_ptr<const PreparedForm> form_;
  std::shared_ptr<const CompactPlan> plan_;
  std::span<const std::int64_t> numbers_;  ///< the plan's
  std::vector<PreparedTensorMap> tensor_maps_;
};

}  // namespace kernwright
