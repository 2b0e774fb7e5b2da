#pragma once

#include <memory>
#include <utility>

#include "device/cuda/driver_device.h"
#include "launch/loaded_kernel.h"
#include "tests/device/plans.h"

namespace kernwright {

/// y = alpha * x by a kernel that takes a tensor map, over a workspace.
inline ExecutionPlan mapped_plan() {
  ExecutionPlan plan;
  plan.tensors = {tensor("x", TensorRole::in, DType::bf16, {32, 64}),
                  tensor("y", TensorRole::out, DType::bf16, {32, 64})};
  plan.scalars = {{.name = "alpha", .dtype = DType::fp32, .default_value = 2, .when = {}}};
  plan.tensor_maps = {{.name = "map",
                       .tensor = 0,
                       .dtype = DType::bf16,
                       .dims = {64, 32},
                       .strides_bytes = {128},
                       .box = {64, 8},
                       .swizzle = 128,
                       .l2_promotion = 0}};
  plan.workspaces = {{.name = "partials", .bytes = 100, .zeroed = false}};
  plan.launches = {launch("scale", {4, 1, 1}, {128, 1, 1},
                          {refer(ArgumentKind::tensor_map, 0), refer(ArgumentKind::tensor, 1),
                           refer(ArgumentKind::scalar, 0), refer(ArgumentKind::workspace, 0)})};
  return plan;
}

/// A kernel for `plan`, loaded by `launcher`, as a service would keep it.
inline std::shared_ptr<LoadedKernel> make_kernel(const ExecutionPlan& plan,
                                                 std::unique_ptr<Launcher> launcher,
                                                 bool check_launches = false) {
  KernelSummary summary;
  summary.problem = "scale rows=32";
  return std::make_shared<LoadedKernel>(std::move(summary),
                                        std::make_shared<const CompactPlan>(plan),
                                        std::move(launcher), Error{}, check_launches);
}

}  // namespace kernwright
