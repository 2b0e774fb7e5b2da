#pragma once

#include <string>
#include <utility>
#include <vector>

#include "model/candidate/candidate.h"

namespace kernwright {

inline ArgumentPlan refer(ArgumentKind kind, std::size_t index) {
  return {.kind = kind, .index = index, .value = 0};
}
inline ArgumentPlan number(ArgumentKind kind, std::int64_t value) {
  return {.kind = kind, .index = 0, .value = value};
}

inline TensorShape tensor(const std::string& name, TensorRole role, DType dtype,
                          std::vector<std::int64_t> extent) {
  TensorShape shape;
  shape.name = name;
  shape.role = role;
  shape.dtype = dtype;
  shape.extent = std::move(extent);
  return shape;
}

inline LaunchPlan launch(const std::string& kernel, Extent3 grid, Extent3 block,
                         std::vector<ArgumentPlan> arguments) {
  LaunchPlan plan;
  plan.kernel = kernel;
  plan.grid = grid;
  plan.block = block;
  plan.arguments = std::move(arguments);
  return plan;
}

/// The plan of `copy_box` of `kHopperKernels`, which copies a matrix of 8 x 64 by a tensor map.
inline ExecutionPlan copy_box_plan() {
  ExecutionPlan plan;
  plan.tensors = {tensor("a", TensorRole::in, DType::bf16, {8, 64}),
                  tensor("out", TensorRole::out, DType::bf16, {8, 64})};
  plan.tensor_maps = {{.name = "map",
                       .tensor = 0,
                       .dtype = DType::bf16,
                       .dims = {64, 8},
                       .strides_bytes = {128},
                       .box = {64, 8},
                       .swizzle = 0,
                       .l2_promotion = 0}};
  plan.launches = {launch("copy_box", {1, 1, 1}, {128, 1, 1},
                          {refer(ArgumentKind::tensor_map, 0), refer(ArgumentKind::tensor, 1),
                           number(ArgumentKind::int32, 0), number(ArgumentKind::int32, 0)})};
  return plan;
}

/// Returns the bytes of each parameter of a kernel that takes the plan's arguments.
inline std::vector<std::size_t> parameter_sizes(const ExecutionPlan& plan,
                                                const LaunchPlan& launch) {
  std::vector<std::size_t> sizes;
  for (const ArgumentPlan& argument : launch.arguments) {
    if (argument.kind == ArgumentKind::tensor_map) {
      sizes.push_back(128);
    } else if (argument.kind == ArgumentKind::scalar) {
      sizes.push_back(static_cast<std::size_t>(bytes_of(1, plan.scalars[argument.index].dtype)));
    } else {
      const bool narrow = argument.kind == ArgumentKind::int32 || depends_on_start(argument.kind);
      sizes.push_back(narrow ? 4 : 8);
    }
  }
  return sizes;
}

/// Two launches: `blocks` blocks of `kernel` count themselves in a zeroed workspace, and the second
/// launch writes the count to a tensor.
inline ExecutionPlan counting_plan(const std::string& kernel, unsigned blocks) {
  ExecutionPlan plan;
  plan.tensors = {tensor("out", TensorRole::out, DType::int32, {1})};
  plan.workspaces = {{.name = "counter", .bytes = 4, .zeroed = true}};
  plan.launches = {launch(kernel, {blocks, 1, 1}, {32, 1, 1}, {refer(ArgumentKind::workspace, 0)}),
                   launch("publish", {1, 1, 1}, {32, 1, 1},
                          {refer(ArgumentKind::workspace, 0), refer(ArgumentKind::tensor, 0)})};
  return plan;
}

}  // namespace kernwright
