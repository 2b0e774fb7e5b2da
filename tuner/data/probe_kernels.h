#pragma once

#include <memory>
#include <string>

#include "compile/compile_pool.h"
#include "device/device.h"
#include <kernwright/result.h>

namespace kernwright {

/// The runner's own kernels, which are never tuned: one that is bound by the SMs' arithmetic, one
/// that is bound by DRAM, and empty ones of any launch shape. None takes arguments. The DRAM kernel
/// copies as many bytes as twice the L2. It also serves to empty the L2, and to disturb candidates
/// while they are checked.
class ProbeKernels {
 public:
  static CompileRequest request(int sm_arch);
  /// Loads the kernels from the result of that request.
  static Result<ProbeKernels> make(Device& device, const CompileResult& compiled);

  const std::shared_ptr<LoadedProgram>& sm() const { return sm_; }
  const std::shared_ptr<LoadedProgram>& dram() const { return dram_; }

  /// Empty kernels with the grids, blocks, clusters and shared memory of the plan's launches.
  Result<std::shared_ptr<LoadedProgram>> empty(Device& device, const ExecutionPlan& plan) const;

  /// A key that is equal for plans with the same `empty` kernels.
  static std::string launch_shape(const ExecutionPlan& plan);

 private:
  std::string bits_;
  std::unique_ptr<DeviceBuffer> memory_;
  std::shared_ptr<LoadedProgram> sm_;
  std::shared_ptr<LoadedProgram> dram_;
};

}  // namespace kernwright
