#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/candidate/choice.h"
#include "model/candidate/device_profile.h"
#include "model/candidate/kernel_template.h"
#include "model/operation/bound_problem.h"
#include <kernwright/result.h>

namespace kernwright {

using Extent3 = std::array<std::uint32_t, 3>;

constexpr std::uint64_t volume(const Extent3& extent) {
  return std::uint64_t{extent[0]} * extent[1] * extent[2];
}

/// Everything from which a TMA descriptor is encoded, except the address. Dims and strides are in
/// the driver's order, innermost first.
struct TensorMapPlan {
  std::string name;
  std::size_t tensor = 0;             ///< index into the candidate's tensors
  std::size_t workspace = kInTensor;  ///< index of the one with the tensor's copy
  DType dtype = DType::bf16;
  std::vector<std::uint64_t> dims;
  std::vector<std::uint64_t> strides_bytes;  ///< of dims 1..rank-1
  std::vector<std::uint32_t> box;
  std::int64_t swizzle = 0;
  std::int64_t l2_promotion = 0;
  static constexpr std::size_t kInTensor = ~std::size_t{0};

  friend bool operator==(const TensorMapPlan&, const TensorMapPlan&) = default;
};

/// One argument of a kernel: its value, or the index of the thing that it refers to.
struct ArgumentPlan {
  ArgumentKind kind = ArgumentKind::int32;
  std::size_t index = 0;   ///< in tensors, tensor_maps, workspaces or scalars; or kAbsent
  std::int64_t value = 0;  ///< for int32, int64, early and ahead
  static constexpr std::size_t kAbsent = ~std::size_t{0};

  friend bool operator==(const ArgumentPlan&, const ArgumentPlan&) = default;
};

/// Returns true for arguments that carry their value in the plan itself.
constexpr bool carries_value(const ArgumentPlan& argument) {
  return argument.kind == ArgumentKind::int32 || argument.kind == ArgumentKind::int64 ||
         depends_on_start(argument.kind);
}

struct LaunchPlan {
  std::string kernel;
  Extent3 grid{1, 1, 1};
  Extent3 block{1, 1, 1};
  Extent3 cluster{1, 1, 1};  ///< all 1: no cluster
  std::uint32_t dynamic_smem = 0;
  bool cooperative = false;
  bool programmatic = false;
  bool waits = false;  ///< its blocks wait for the previous kernel before they touch its memory
  /// Indices of the tensors that are read before the wait if the argument `ahead` is not 0.
  std::vector<std::size_t> ahead;
  std::vector<ArgumentPlan> arguments;

  friend bool operator==(const LaunchPlan&, const LaunchPlan&) = default;
};

struct WorkspacePlan {
  std::string name;
  std::int64_t bytes = 0;  ///< 0: not needed, passed as null
  bool zeroed = false;     ///< zeros on entry to each launch
  /// Zeros on entry, and again when the launch has ended: in a graph they are made once.
  bool kept_zero = false;

  friend bool operator==(const WorkspacePlan&, const WorkspacePlan&) = default;
};

/// Returns the bytes that a workspace of so many takes in the buffer that holds all of them.
constexpr std::int64_t workspace_room(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

/// A part of that buffer.
struct WorkspacePart {
  std::string name;
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
};

/// Everything that launching a compiled kernel for one problem needs, as plain values. The
/// workspaces are in one buffer in this order, each aligned to 256 bytes.
struct ExecutionPlan {
  std::vector<TensorShape> tensors;
  std::vector<Scalar> scalars;
  std::vector<TensorMapPlan> tensor_maps;
  std::vector<WorkspacePlan> workspaces;
  std::vector<LaunchPlan> launches;

  /// Returns the size of the buffer for all workspaces.
  std::int64_t workspace_bytes() const;
  /// Returns the offset of workspace number `index` in it.
  std::int64_t workspace_offset(std::size_t index) const;
  /// Returns the workspaces in it that are kept zero.
  std::vector<WorkspacePart> kept_zero() const;
};

/// Checks that a kernel whose parameters have these sizes takes the arguments of one of the plan's
/// launches. Errors: `invalid_argument` with both values.
Result<void> check_parameters(const ExecutionPlan& plan, const LaunchPlan& launch,
                              std::span<const std::size_t> parameter_bytes);

/// Returns whether two plans for one problem launch the same in a chain, from the same code. The
/// chain decides whether the first launch starts early, so that counts as no difference.
bool same_in_chain(const ExecutionPlan& a, const ExecutionPlan& b);
/// Returns the same for steps that do not start early, whose arguments `early` and `ahead` are 0.
bool same_when_late(const ExecutionPlan& a, const ExecutionPlan& b);

/// Returns whether the first launch, in a chain that allows it, reads tensors ahead of its wait.
bool reads_ahead(const ExecutionPlan& plan);

/// A template with a configuration that is valid for one problem on one device profile.
struct Candidate {
  const KernelTemplate* kernel_template = nullptr;
  std::shared_ptr<const BoundProblem> problem;  ///< null in a recorded space
  Configuration configuration;
  Scope scope;      ///< all values that expressions may name
  Demands demands;  ///< from the manifest's "cost"
  ExecutionPlan plan;

  Choice choice() const { return {kernel_template->name, configuration}; }
  std::string id() const { return choice().id(); }
};

/// Returns a text that two candidates share only if their bits are the same, if their problems
/// differ in sizes alone.
std::string bits_key(const Candidate& candidate);

/// Returns the configuration without the derived values that it may name (see
/// `SizeCheck::compiled`), as decisions name it.
Configuration without_derived(const KernelTemplate& kernel_template,
                              const Configuration& configuration);

/// Returns the first habit that a candidate breaks, or null.
const Rule* broken_habit(const Candidate& candidate);

/// Checks whether the template applies to the problem on the device: its conditions hold, and no
/// kernel lacks a tensor that only some problems have. Errors: `invalid_argument` with the reason.
Result<void> applies(const KernelTemplate& kernel_template, const BoundProblem& problem,
                     const DeviceProfile& profile);

/// Evaluates the rules, the derived values, the demands and the launches, and checks the limits of
/// CUDA and of the device (threads per block, shared memory, grid, TMA alignment), and that some
/// launch takes each output. Errors: `invalid_argument` if the configuration is rejected, with the
/// manifest's line, the rule's text, both values and its reason.
Result<Candidate> make_candidate(const KernelTemplate& kernel_template, const BoundProblem& problem,
                                 const Configuration& configuration, const DeviceProfile& profile);

/// Makes the plan of the operation's reference kernel for a problem. The indices of arguments of
/// kind `reference` and `magnitude` are tensor indices. Errors: `invalid_argument` with the output
/// that has no reference, or no magnitude although it is compared with a tolerance.
Result<ExecutionPlan> make_reference_plan(const BoundProblem& problem,
                                          const DeviceProfile& profile);

/// Makes the plan of `kernel`, one of the operation's input kernels, for a problem. The last scalar
/// is the seed.
Result<ExecutionPlan> make_input_plan(const BoundProblem& problem, std::string_view kernel,
                                      const DeviceProfile& profile);

}  // namespace kernwright
