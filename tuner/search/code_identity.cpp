#include "tuner/search/code_identity.h"

namespace kernwright {
namespace {

void add(Hasher& hasher, const Extent3& extent) {
  for (const std::uint32_t value : extent) hasher.add("", std::int64_t{value});
}

void add(Hasher& hasher, const LaunchPlan& launch) {
  hasher.add("kernel", launch.kernel);
  add(hasher, launch.grid);
  add(hasher, launch.block);
  add(hasher, launch.cluster);
  hasher.add("smem", std::int64_t{launch.dynamic_smem});
  hasher.add("flags", std::int64_t{launch.cooperative} * 2 + std::int64_t{launch.programmatic});
  for (const ArgumentPlan& argument : launch.arguments) {
    hasher.add("kind", static_cast<std::int64_t>(argument.kind));
    hasher.add("index", static_cast<std::int64_t>(argument.index));
    hasher.add("value", argument.value);
  }
}

void add(Hasher& hasher, const TensorMapPlan& map) {
  hasher.add("tensor", static_cast<std::int64_t>(map.tensor));
  hasher.add("workspace", static_cast<std::int64_t>(map.workspace));
  hasher.add("dtype", static_cast<std::int64_t>(map.dtype));
  for (const std::uint64_t dim : map.dims) hasher.add("dim", static_cast<std::int64_t>(dim));
  for (const std::uint64_t stride : map.strides_bytes) {
    hasher.add("stride", static_cast<std::int64_t>(stride));
  }
  for (const std::uint32_t box : map.box) hasher.add("box", std::int64_t{box});
  hasher.add("swizzle", map.swizzle);
  hasher.add("promotion", map.l2_promotion);
}

}  // namespace

Digest code_identity(const Candidate& candidate, const CompiledKernel& kernel) {
  Hasher hasher;
  hasher.add("bits", kernel.bits);
  const ExecutionPlan& plan = candidate.plan;
  for (const LaunchPlan& launch : plan.launches) add(hasher, launch);
  for (const TensorMapPlan& map : plan.tensor_maps) add(hasher, map);
  for (const WorkspacePlan& workspace : plan.workspaces) {
    hasher.add("workspace", workspace.bytes);
    hasher.add("zeroed", std::int64_t{workspace.zeroed});
    if (workspace.kept_zero) hasher.add("kept_zero", std::int64_t{1});
  }
  return hasher.finish();
}

}  // namespace kernwright
