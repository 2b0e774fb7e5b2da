#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/expression/expression.h"
#include "support/json.h"

namespace kernwright {

/// The kind of a kernel's argument.
enum class ArgumentKind {
  tensor,      ///< the device pointer of a tensor; null if the tensor is absent
  tensor_map,  ///< a 128-byte TMA descriptor by value
  workspace,   ///< the device pointer of a workspace
  scalar,      ///< a scalar of the operation, in its dtype
  int32,       ///< an expression
  int64,       ///< an expression
  early,       ///< an expression, as int32, if the launch starts early; else 0
  ahead,       ///< the same if it may read tensors before its wait; else 0
  reference,   ///< in reference kernels: float* of an output's unrounded result
  magnitude    ///< in reference kernels: float* of the sum of absolute terms of an output
};

/// Returns whether the way its launch starts decides if the argument is 0.
constexpr bool depends_on_start(ArgumentKind kind) {
  return kind == ArgumentKind::early || kind == ArgumentKind::ahead;
}

struct ArgumentSpec {
  ArgumentKind kind = ArgumentKind::int32;
  std::string name;       ///< of the tensor, tensor map, workspace or scalar
  Expression expression;  ///< for int32, int64, early and ahead
  std::string parameter;  ///< the name of the kernel's parameter
  std::string type;       ///< of the parameter, in CUDA; empty: it follows from the above
};

/// A kernel launch as written in the manifest. Geometry and arguments are expressions over the
/// problem, the parameters, derived values and the device.
struct LaunchSpec {
  std::string kernel;
  std::vector<Expression> grid;  ///< x, y, z; missing ones are 1
  std::vector<Expression> block;
  std::vector<Expression> cluster;  ///< empty: no cluster
  Expression dynamic_smem;          ///< bytes
  Expression cooperative;           ///< 0 or 1
  Expression programmatic;          ///< 1: programmatic dependent launch
  Expression waits;                 ///< 1: every block waits for the previous kernel
  Expression when;                  ///< 0: this launch is left out for the problem
  /// Tensors that are read before the wait, if the argument `ahead` is not 0.
  std::vector<std::string> ahead;
  bool in_place = false;  ///< outputs may be in the memory of inputs
  std::vector<ArgumentSpec> arguments;
  JsonPlace place;
};

}  // namespace kernwright
