#include "model/candidate/plan_builder.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "model/operation/dtype_format.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

/// The largest cluster that every GPU with clusters can launch.
constexpr std::int64_t kMaxCluster = 8;
constexpr int kClusterArch = 90;
constexpr std::string_view kAxes[] = {"x", "y", "z"};

/// Fills an execution plan, and remembers the first violated limit of CUDA or of the device.
/// `files` are the files of the launches.
class PlanBuilder {
 public:
  /// `tensors` comes from `plan_tensors`.
  PlanBuilder(std::span<const JsonFile> files, const Operation& operation,
              Result<ExecutionPlan> tensors, const ValueSource& values,
              const DeviceProfile& profile)
      : files_(files), operation_(operation), values_(values), profile_(profile) {
    if (tensors) {
      plan_ = *std::move(tensors);
    } else {
      error_ = tensors.error().message;
    }
  }

  /// Adds a tensor map, unless the problem does not have its tensor. Workspaces are added before.
  void add_tensor_map(const TensorMapSpec& spec) {
    if (!error_.empty()) return;
    TensorMapPlan map;
    map.name = spec.name;
    map.tensor = tensor_index(spec.tensor);
    if (map.tensor == ArgumentPlan::kAbsent) return;
    at(spec.place, "tensor map ", spec.name);
    if (!flag("when", spec.when)) return;
    const TensorShape& tensor = plan_.tensors[map.tensor];
    map.dtype = tensor.dtype;
    map.swizzle = evaluate("swizzle", spec.swizzle);
    map.l2_promotion = evaluate("l2_promotion", spec.l2_promotion);
    const std::vector<std::int64_t> extent = view_of(spec, tensor);
    if (!error_.empty()) return;
    // Elements from a row to the next, if not the tensor's own pitches count.
    const std::int64_t copied = copy_pitch(spec, map, tensor);
    const std::int64_t row = spec.view.empty() ? copied : extent.back();
    std::int64_t rows = 1;  // up to a dim
    for (std::size_t i = extent.size(); i-- > 0;) {
      map.dims.push_back(static_cast<std::uint64_t>(extent[i]));
      if (i > 0) {
        const std::int64_t pitch = row == 0 ? tensor.pitch(i - 1) : rows * row;
        map.strides_bytes.push_back(static_cast<std::uint64_t>(bytes_of(pitch, tensor.dtype)));
        rows *= extent[i - 1];
      }
      const std::int64_t box = evaluate("box", spec.box[i]);
      expect(box >= 1 && box <= 256, "box", spec.box[i], box, "in 1 to 256");
      map.box.push_back(static_cast<std::uint32_t>(box));
    }
    if (map.workspace != TensorMapPlan::kInTensor) {
      const WorkspacePlan& copy = plan_.workspaces[map.workspace];
      const std::int64_t bytes = bytes_of(rows * copied, tensor.dtype);
      if (bytes > copy.bytes) {
        fail(concat("a copy of ", bytes, " bytes > ", copy.bytes, " of workspace ", copy.name));
      }
    }
    check_tensor_map(map, tensor);
    plan_.tensor_maps.push_back(std::move(map));
  }

  void add_workspace(const WorkspaceSpec& spec) {
    if (!error_.empty()) return;
    at(spec.place, "workspace ", spec.name);
    WorkspacePlan workspace;
    workspace.name = spec.name;
    workspace.bytes = evaluate("bytes", spec.bytes);
    expect(workspace.bytes >= 0 && workspace.bytes <= kMaxWorkspaceBytes, "bytes", spec.bytes,
           workspace.bytes, "in 0 to 2^48");
    workspace.zeroed = flag("zeroed", spec.zeroed);
    workspace.kept_zero = flag("kept_zero", spec.kept_zero);
    if (workspace.zeroed && workspace.kept_zero) {
      fail(concat("zeroed \"", spec.zeroed.text(), "\" and kept_zero \"", spec.kept_zero.text(),
                  "\" are both 1: what is kept zero needs no zeroing"));
    }
    plan_.workspaces.push_back(std::move(workspace));
  }

  void add_launch(const LaunchSpec& spec) {
    if (!error_.empty()) return;
    at(spec.place, "launch ", spec.kernel);
    if (!flag("when", spec.when)) return;
    LaunchPlan launch;
    launch.kernel = spec.kernel;
    launch.grid = extent("grid", spec.grid, kMaxGrid);
    launch.block = extent("block", spec.block, kMaxBlock);
    launch.cluster = extent("cluster", spec.cluster, kMaxGrid);
    const std::int64_t smem = evaluate("dynamic_smem", spec.dynamic_smem);
    expect(smem >= 0 && smem <= profile_.smem_per_block_optin, "dynamic_smem", spec.dynamic_smem,
           smem, concat("in 0 to ", profile_.smem_per_block_optin));
    launch.dynamic_smem = static_cast<std::uint32_t>(smem);
    launch.cooperative = flag("cooperative", spec.cooperative);
    launch.programmatic = flag("programmatic", spec.programmatic);
    launch.waits = flag("waits", spec.waits) && profile_.sm_arch >= kClusterArch;
    check_launch(launch);
    for (const std::string& name : spec.ahead) {
      const std::size_t tensor = tensor_index(name);
      if (tensor != ArgumentPlan::kAbsent) launch.ahead.push_back(tensor);
    }
    for (const ArgumentSpec& argument : spec.arguments) {
      launch.arguments.push_back(make_argument(argument));
    }
    plan_.launches.push_back(std::move(launch));
  }

  /// Fails if no launch takes an output, so that nothing writes it. The message blames `place`.
  void expect_outputs_given(std::string_view place) {
    if (!error_.empty()) return;
    for (std::size_t i = 0; i < plan_.tensors.size(); ++i) {
      const TensorShape& tensor = plan_.tensors[i];
      if (tensor.role == TensorRole::in) continue;
      const auto is_given = [&](const ArgumentPlan& argument) {
        if (argument.index == ArgumentPlan::kAbsent) return false;
        return argument.kind == ArgumentKind::tensor_map
                   ? plan_.tensor_maps[argument.index].tensor == i
                   : argument.kind == ArgumentKind::tensor && argument.index == i;
      };
      if (given_to_some_launch(is_given)) continue;
      error_ = concat(place, ": no launch is given output ", tensor.name, ", so nothing writes it");
      return;
    }
  }

  /// Fails if the reference does not write everything that checks compare an output with.
  void expect_reference_complete(std::string_view place) {
    if (!error_.empty()) return;
    for (std::size_t i = 0; i < plan_.tensors.size(); ++i) {
      const TensorShape& tensor = plan_.tensors[i];
      if (tensor.role == TensorRole::in) continue;
      // Wide integers must equal the reference; all else has a tolerance that magnitudes scale.
      const bool equals = is_integer(tensor.dtype) && dtype_bits(tensor.dtype) >= 32;
      for (const auto& [kind, key] : {std::pair(ArgumentKind::reference, "reference"),
                                      std::pair(ArgumentKind::magnitude, "magnitude")}) {
        if (kind == ArgumentKind::magnitude && equals) continue;
        if (given_to_some_launch([kind, i](const ArgumentPlan& argument) {
              return argument.kind == kind && argument.index == i;
            })) {
          continue;
        }
        error_ = concat(place, ": the reference is given no {\"", key, "\": \"", tensor.name,
                        "\"}, so that ", tensor.name, " cannot be checked");
        return;
      }
    }
  }

  Result<ExecutionPlan> finish() {
    if (error_.empty() && plan_.launches.empty()) error_ = "no launch applies to the problem";
    if (!error_.empty()) return Error{ErrorCode::invalid_argument, std::move(error_)};
    return std::move(plan_);
  }

 private:
  template <typename IsGiven>
  bool given_to_some_launch(const IsGiven& is_given) const {
    return std::ranges::any_of(plan_.launches, [&](const LaunchPlan& launch) {
      return std::ranges::any_of(launch.arguments, is_given);
    });
  }

  /// Returns the elements from a row of the tensor's copy to the next; 0 if the map reads the
  /// tensor itself. Sets the map's workspace if there is a copy.
  std::int64_t copy_pitch(const TensorMapSpec& spec, TensorMapPlan& map,
                          const TensorShape& tensor) {
    if (spec.copy.empty()) return 0;
    const std::size_t copy = index_of(plan_.workspaces, spec.copy);
    if (copy == ArgumentPlan::kAbsent || plan_.workspaces[copy].bytes == 0) return 0;
    map.workspace = copy;
    const std::int64_t pitch = evaluate("pitch", spec.pitch);
    // The limit is beyond any device, and a product of two such factors fits 64 bits.
    expect(pitch >= tensor.columns() && pitch <= (std::int64_t{1} << 32), "pitch", spec.pitch,
           pitch, concat("in ", tensor.columns(), " to 2^32"));
    return pitch;
  }

  /// Sets the part of the manifest that messages name: "tensor map ", "a".
  void at(JsonPlace place, std::string_view kind, std::string_view name) {
    place_ = place;
    kind_ = kind;
    name_ = name;
  }

  void fail(std::string_view what) {
    if (error_.empty()) error_ = concat(place_.in(files_), ": ", kind_, name_, ": ", what);
  }

  void expect(bool holds, std::string_view field, const Expression& expression, std::int64_t value,
              std::string_view allowed) {
    if (holds || !error_.empty()) return;
    fail(concat(field, " \"", expression.text(), "\" is ", value, ", not ", allowed));
  }

  std::int64_t evaluate(std::string_view field, const Expression& expression) {
    const Result<std::int64_t> value = values_.evaluate(expression);
    if (value) return *value;
    fail(concat(field, " failed: ", value.error().message));
    return 0;
  }

  bool flag(std::string_view field, const Expression& expression) {
    const std::int64_t value = evaluate(field, expression);
    expect(value == 0 || value == 1, field, expression, value, "0 or 1");
    return value != 0;
  }

  Extent3 extent(std::string_view field, const std::vector<Expression>& expressions,
                 const std::array<std::int64_t, 3>& limits) {
    Extent3 result{1, 1, 1};
    for (std::size_t i = 0; i < expressions.size(); ++i) {
      const std::int64_t value = evaluate(field, expressions[i]);
      if (value < 1 || value > limits[i]) {
        fail(concat(field, " ", kAxes[i], " \"", expressions[i].text(), "\" is ", value,
                    ", not in 1 to ", limits[i]));
        return result;
      }
      result[i] = static_cast<std::uint32_t>(value);
    }
    return result;
  }

  void check_launch(const LaunchPlan& launch) {
    if (!error_.empty()) return;
    const auto count = [](const Extent3& extent) {
      return std::int64_t{extent[0]} * extent[1] * extent[2];
    };
    if (count(launch.block) > kMaxThreadsPerBlock) {
      fail(concat(count(launch.block), " threads per block > ", kMaxThreadsPerBlock));
    }
    const std::int64_t cluster = count(launch.cluster);
    if (cluster > kMaxCluster) fail(concat(cluster, " blocks per cluster > ", kMaxCluster));
    if (cluster > 1 && profile_.sm_arch < kClusterArch) {
      fail(concat("clusters need sm_", kClusterArch, ", the device is sm_", profile_.sm_arch));
    }
    for (std::size_t i = 0; i < 3; ++i) {
      if (launch.grid[i] % launch.cluster[i] != 0) {
        fail(concat("grid ", kAxes[i], " ", launch.grid[i], " is no multiple of the cluster's ",
                    launch.cluster[i]));
      }
    }
    if (launch.programmatic && profile_.sm_arch < kClusterArch) {
      fail(concat("programmatic launches need sm_", kClusterArch, ", the device is sm_",
                  profile_.sm_arch));
    }
    const std::int64_t resident = profile_.sm_count * profile_.max_blocks_per_sm;
    // The number of blocks of the largest grid fits 64 bits.
    if (launch.cooperative && count(launch.grid) > resident) {
      fail(concat("a cooperative grid of ", count(launch.grid), " blocks > ", resident,
                  " that can be resident"));
    }
  }

  /// Returns the dims of a tensor map, which are the tensor's if it has no view. A view must have
  /// as many elements, and the tensor no gaps.
  std::vector<std::int64_t> view_of(const TensorMapSpec& spec, const TensorShape& tensor) {
    if (spec.view.empty()) return tensor.extent;
    std::vector<std::int64_t> extent;
    std::int64_t elements = 1;
    for (const Expression& dim : spec.view) {
      extent.push_back(evaluate("view", dim));
      elements *= extent.back();
    }
    std::int64_t count = 1;
    for (std::size_t i = tensor.extent.size(); i-- > 0;) {
      count *= tensor.extent[i];
      if (i > 0 && tensor.pitch(i - 1) != count) {
        fail(concat("a view of tensor ", tensor.name, ", whose dim ", i - 1, " has a pitch of ",
                    tensor.pitch(i - 1), " and not ", count));
      }
    }
    if (elements != count) {
      fail(concat("a view of ", elements, " elements of tensor ", tensor.name, " with ", count));
    }
    return extent;
  }

  /// Checks the constraints of cuTensorMapEncodeTiled without interleave (CUDA driver API
  /// reference).
  void check_tensor_map(const TensorMapPlan& map, const TensorShape& tensor) {
    if (!error_.empty()) return;
    if (profile_.sm_arch < kClusterArch) {
      fail(concat("TMA needs sm_", kClusterArch, ", the device is sm_", profile_.sm_arch));
    }
    if (tensor.alignment < 16) {
      fail(concat("tensor ", tensor.name, " is aligned to ", tensor.alignment, " bytes < 16"));
    }
    for (const std::uint64_t dim : map.dims) {
      if (dim > kMaxMapExtent) fail(concat("extent ", dim, " > 2^32"));
    }
    for (const std::uint64_t stride : map.strides_bytes) {
      if (stride % kMapAlignment != 0)
        fail(concat("a stride of ", stride, " bytes is no multiple of 16"));
      if (stride >= kMapStrideEnd) fail(concat("a stride of ", stride, " bytes >= 2^40"));
    }
    constexpr std::int64_t kSwizzles[] = {0, 32, 64, 128};
    if (std::find(std::begin(kSwizzles), std::end(kSwizzles), map.swizzle) == std::end(kSwizzles)) {
      fail(concat("swizzle ", map.swizzle, " is not one of 0, 32, 64, 128"));
    }
    constexpr std::int64_t kPromotions[] = {0, 64, 128, 256};
    if (std::find(std::begin(kPromotions), std::end(kPromotions), map.l2_promotion) ==
        std::end(kPromotions)) {
      fail(concat("l2_promotion ", map.l2_promotion, " is not one of 0, 64, 128, 256"));
    }
    const std::int64_t inner = bytes_of(std::int64_t{map.box[0]}, map.dtype);
    if (inner % 16 != 0) fail(concat("the box's inner ", inner, " bytes are no multiple of 16"));
    if (map.swizzle != 0 && inner > map.swizzle) {
      fail(concat("the box's inner ", inner, " bytes > the swizzle's span of ", map.swizzle));
    }
  }

  std::size_t tensor_index(std::string_view name) const {
    const auto found = std::find_if(plan_.tensors.begin(), plan_.tensors.end(),
                                    [&](const TensorShape& tensor) { return tensor.name == name; });
    if (found == plan_.tensors.end()) return ArgumentPlan::kAbsent;
    return static_cast<std::size_t>(found - plan_.tensors.begin());
  }

  template <typename Named>
  static std::size_t index_of(const std::vector<Named>& items, std::string_view name) {
    const auto found = std::find_if(items.begin(), items.end(),
                                    [&](const Named& item) { return item.name == name; });
    if (found == items.end()) return ArgumentPlan::kAbsent;
    return static_cast<std::size_t>(found - items.begin());
  }

  ArgumentPlan make_argument(const ArgumentSpec& spec) {
    ArgumentPlan argument;
    argument.kind = spec.kind;
    switch (spec.kind) {
      case ArgumentKind::tensor:
      case ArgumentKind::reference:
      case ArgumentKind::magnitude:
        argument.index = index_of(plan_.tensors, spec.name);
        break;
      case ArgumentKind::tensor_map:
        argument.index = index_of(plan_.tensor_maps, spec.name);
        break;
      case ArgumentKind::workspace:
        argument.index = index_of(plan_.workspaces, spec.name);
        break;
      case ArgumentKind::scalar:
        argument.index = index_of(plan_.scalars, spec.name);
        if (argument.index == ArgumentPlan::kAbsent) return default_of(spec.name);
        break;
      case ArgumentKind::int32:
      case ArgumentKind::early:
      case ArgumentKind::ahead:
        argument.value = evaluate("argument", spec.expression);
        expect(argument.value >= std::numeric_limits<std::int32_t>::min() &&
                   argument.value <= std::numeric_limits<std::int32_t>::max(),
               "argument", spec.expression, argument.value, "an int32");
        break;
      case ArgumentKind::int64:
        argument.value = evaluate("argument", spec.expression);
        break;
    }
    return argument;
  }

  /// Returns the argument for a scalar that the problem does not take: its default, as an integer
  /// of the same bits.
  ArgumentPlan default_of(std::string_view name) const {
    const Scalar& scalar = operation_.scalars[index_of(operation_.scalars, name)];
    const double value = scalar.default_in(values_.scope());
    ArgumentPlan argument;
    argument.kind = dtype_bits(scalar.dtype) == 64 ? ArgumentKind::int64 : ArgumentKind::int32;
    if (scalar.dtype == DType::fp64) {
      argument.value = std::bit_cast<std::int64_t>(value);
    } else if (scalar.dtype == DType::fp32) {
      argument.value = std::bit_cast<std::int32_t>(static_cast<float>(value));
    } else {
      argument.value = static_cast<std::int64_t>(value);
    }
    return argument;
  }

  std::span<const JsonFile> files_;
  const Operation& operation_;
  ValueSource values_;
  const DeviceProfile& profile_;
  ExecutionPlan plan_;
  JsonPlace place_;
  std::string_view kind_;
  std::string_view name_;
  std::string error_;
};

}  // namespace

namespace detail {

Result<void> applies_in(const KernelTemplate& kernel_template, const Scope& scope,
                        const DeviceProfile& profile) {
  const ArchRange& arch = kernel_template.arch;
  if (!kernel_template.runs_on(profile.sm_arch)) {
    return Error{ErrorCode::invalid_argument,
                 concat(kernel_template.name, " runs on sm_", arch.min,
                        arch.max == 0          ? std::string(" and newer")
                        : arch.max == arch.min ? std::string(" alone")
                                               : concat(" to sm_", arch.max),
                        ", the device is sm_", profile.sm_arch)};
  }
  for (const Expression& condition : kernel_template.when) {
    const Result<std::int64_t> holds = condition.evaluate(scope);
    if (holds && *holds != 0) continue;
    return Error{ErrorCode::invalid_argument,
                 concat(kernel_template.name, " applies when \"", condition.text(),
                        "\": ", holds ? condition.explain_zero(scope) : holds.error().message)};
  }
  return {};
}

Result<ExecutionPlan> plan_tensors(const BoundProblem& problem) {
  ExecutionPlan plan;
  plan.tensors = problem.shapes();
  KW_ASSIGN(plan.scalars, problem.scalars());
  return plan;
}

void visit_launches(const KernelTemplate& kernel_template,
                    const std::function<void(const Expression&)>& visit) {
  for (const WorkspaceSpec& spec : kernel_template.workspaces) {
    for (const Expression* one : {&spec.bytes, &spec.zeroed, &spec.kept_zero}) visit(*one);
  }
  for (const TensorMapSpec& spec : kernel_template.tensor_maps) {
    for (const Expression* one : {&spec.when, &spec.pitch, &spec.swizzle, &spec.l2_promotion}) {
      visit(*one);
    }
    for (const auto* list : {&spec.view, &spec.box}) {
      for (const Expression& one : *list) visit(one);
    }
  }
  for (const LaunchSpec& spec : kernel_template.launches) {
    for (const auto* list : {&spec.grid, &spec.block, &spec.cluster}) {
      for (const Expression& one : *list) visit(one);
    }
    for (const Expression* one :
         {&spec.when, &spec.dynamic_smem, &spec.cooperative, &spec.programmatic, &spec.waits}) {
      visit(*one);
    }
    for (const ArgumentSpec& argument : spec.arguments) visit(argument.expression);
  }
}

Result<ExecutionPlan> make_plan(const KernelTemplate& kernel_template, const Operation& operation,
                                Result<ExecutionPlan> tensors, const ValueSource& values,
                                const DeviceProfile& profile) {
  PlanBuilder builder(kernel_template.manifests, operation, std::move(tensors), values, profile);
  for (const WorkspaceSpec& workspace : kernel_template.workspaces) {
    builder.add_workspace(workspace);
  }
  for (const TensorMapSpec& map : kernel_template.tensor_maps) builder.add_tensor_map(map);
  for (const LaunchSpec& launch : kernel_template.launches) builder.add_launch(launch);
  builder.expect_outputs_given(kernel_template.manifest().place);
  return builder.finish();
}

}  // namespace detail

namespace {

/// Makes the plan of one launch that operation.json declares.
Result<ExecutionPlan> plan_beside(const BoundProblem& problem, Result<ExecutionPlan> tensors,
                                  const LaunchSpec& launch, const DeviceProfile& profile,
                                  bool is_reference) {
  const JsonFile file{{}, problem.operation().folder + "/operation.json", {}};
  PlanBuilder builder({&file, 1}, problem.operation(), std::move(tensors), problem.scope(),
                      profile);
  builder.add_launch(launch);
  if (is_reference) builder.expect_reference_complete(launch.place.in({&file, 1}));
  return builder.finish();
}

}  // namespace

Result<ExecutionPlan> make_reference_plan(const BoundProblem& problem,
                                          const DeviceProfile& profile) {
  return plan_beside(problem, detail::plan_tensors(problem), problem.operation().reference, profile,
                     true);
}

Result<ExecutionPlan> make_input_plan(const BoundProblem& problem, std::string_view kernel,
                                      const DeviceProfile& profile) {
  Result<ExecutionPlan> tensors = detail::plan_tensors(problem);
  if (!tensors) return tensors;
  Scalar seed;
  seed.name = InputKernels::kSeed;
  seed.dtype = InputKernels::kSeedDtype;
  tensors->scalars.push_back(std::move(seed));
  LaunchSpec launch = problem.operation().input_kernels->launch;
  launch.kernel = kernel;
  return plan_beside(problem, std::move(tensors), launch, profile, false);
}

}  // namespace kernwright
