#pragma once

#include <string>
#include <utility>
#include <vector>

#include "model/candidate.h"

namespace kernwright {

inline ArgumentPlan refer(ArgumentKind kind, std::size_t index) {
  return {.kind = kind, .index = index, .value = 0};
}
inline ArgumentPlan number(ArgumentKind kind, std::int64_t value) {
  return {.kind = kind, .index = 0, .value = value};
}

inline TensorShape tensor(const std::string& name, TensorRole role, DType dtype,
                          std::vector<std::int64_t> extent) {
  return {.name = name, .role = role, .dtype = dtype, .extent = std::move(extent), .alignment = 16};
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

}  // namespace kernwright
