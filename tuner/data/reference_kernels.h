#pragma once

#include <memory>
#include <string>

#include "compile/compile_pool.h"
#include "device/device.h"
#include <kernwright/result.h>

namespace kernwright {

/// Kernels of the runner's own, which are never tuned: one that is bound by the SMs' arithmetic,
/// one that is bound by DRAM, and empty ones of any launch shape. None takes arguments. The DRAM
/// one copies twice the L2 to another place. It also serves to empty the L2, and to disturb
/// candidates while they are checked.
class ReferenceKernels {
 public:
  static CompileRequest request(int sm_arch);
  /// Of what that request gave.
  static Result<ReferenceKernels> make(Device& device, const CompileResult& compiled);

  const std::shared_ptr<LoadedProgram>& sm() const { return sm_; }
  const std::shared_ptr<LoadedProgram>& dram() const { return dram_; }

  /// Empty kernels with the launches' grids, blocks, clusters and shared memory.
  Result<std::shared_ptr<LoadedProgram>> empty(Device& device, const ExecutionPlan& plan) const;

  /// Equal for plans whose `empty` is the same.
  static std::string launch_shape(const ExecutionPlan& plan);

 private:
  std::string bits_;
  std::unique_ptr<DeviceBuffer> memory_;
  std::shared_ptr<LoadedProgram> sm_;
  std::shared_ptr<LoadedProgram> dram_;
};

}  // namespace kernwright
