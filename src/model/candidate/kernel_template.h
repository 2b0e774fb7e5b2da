#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/candidate/demands.h"
#include "model/candidate/parameter_space.h"
#include "model/expression/expression.h"
#include "model/expression/rule.h"
#include "model/files/device_header.h"
#include "model/operation/launch_spec.h"
#include "model/operation/operation.h"
#include "support/json.h"
#include <kernwright/result.h>

namespace kernwright {

/// A named value that is computed from parameters, the problem and the device. If it is `pasted`
/// the compiler knows all names in it, and asserts that its value equals the host's. If it is
/// `bound` the compiler gets the host's value; the expression may then name everything but run-time
/// parameters. The manifest's numbers are neither.
struct Derived {
  std::string name;
  Expression expression;
  bool pasted = false;
  bool bound = false;
  JsonPlace place;
};

/// A TMA descriptor, which is encoded for each launch: for a tensor with its extent and dtype, and
/// this box. `view` has other dims for the same elements, one after another. If `copy` names a
/// workspace that has bytes, the descriptor is for a copy of the tensor there, with rows `pitch`
/// elements apart.
struct TensorMapSpec {
  std::string name;
  std::string tensor;
  std::string copy;              ///< a workspace; empty for none
  Expression pitch;              ///< elements, for `copy`
  std::vector<Expression> view;  ///< elements, outermost first; empty: the tensor's own dims
  std::vector<Expression> box;   ///< elements, outermost first, one per dim
  Expression swizzle;            ///< 0, 32, 64 or 128 bytes
  Expression l2_promotion;       ///< 0, 64, 128 or 256 bytes
  Expression when;               ///< 0: left out for the problem
  JsonPlace place;
};

struct WorkspaceSpec {
  std::string name;
  Expression bytes;
  Expression zeroed;     ///< 1: the kernel needs zeros on entry
  Expression kept_zero;  ///< 1: it needs them, and leaves them
  JsonPlace place;
};

/// The architectures that a template runs on. With `specific` it is compiled for an architecture-
/// specific target (sm_90a), and there is only one architecture.
struct ArchRange {
  int min = 0;
  int max = 0;  ///< 0: no upper end
  bool specific = false;
};

/// One implementation of an operation: CUDA source and its manifest. Immutable.
struct KernelTemplate {
  std::string name;  ///< "matmul/persistent_wave"
  std::string description;
  std::string operation;
  std::vector<JsonFile> manifests;  ///< manifest.json, then the fragments, the nearest first
  std::string source_file;
  std::string source;
  std::vector<DeviceHeader> headers;  ///< files beside the source, which it may include
  ArchRange arch;
  std::vector<Expression> when;
  std::vector<std::string> constant_dims;  ///< pasted; all others are run-time arguments
  ParameterSpace space;
  Configuration default_configuration;
  std::vector<Derived> derived;
  std::vector<Rule> rules;
  std::vector<Rule> habits;      ///< rules of experience, which no compiler sees
  std::vector<DemandSpec> cost;  ///< empty: not declared
  std::int64_t allowed_spill_bytes = 0;
  std::vector<TensorMapSpec> tensor_maps;
  std::vector<WorkspaceSpec> workspaces;
  std::vector<LaunchSpec> launches;

  const JsonFile& manifest() const { return manifests.front(); }
  bool runs_on(int sm_arch) const;
  /// Returns the compile target for `sm_arch`, e.g. "sm_90a".
  std::string target(int sm_arch) const;
};

}  // namespace kernwright
