#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "device/device.h"
#include "device/driver/handles.h"
#include "device/program/prepared_program.h"
#include "device/program/workspace_pool.h"
#include "model/candidate/candidate.h"
#include <kernwright/result.h>

namespace kernwright {

/// A cubin that is loaded for the execution plan of one problem: its functions are resolved, their
/// attributes set, and the constant parts of tensor maps encoded. Any thread may launch it on any
/// stream of its current context. Immutable.
class Launcher {
 public:
  /// Loads for GPU `ordinal`. Captures of other streams stay valid. Errors: `unavailable` without a
  /// driver; `invalid_argument` for a plan that does not fit the cubin or the GPU, with both
  /// values; `device` with the driver's message.
  static Result<std::unique_ptr<Launcher>> load(std::string_view cubin, const ExecutionPlan& plan,
                                                int ordinal = 0);

  /// Loads the same code for another plan of its kernels, on the same GPU: nothing is read, and the
  /// driver loads nothing. Errors: as for `load`.
  Result<std::unique_ptr<Launcher>> with(std::shared_ptr<const CompactPlan> plan) const;

  /// Calls `kernwright::in_capture` with the driver of this process. Errors also: `unavailable`.
  static Result<bool> in_capture(void* stream);

  Launcher(const DriverApi& api, std::unique_ptr<PreparedProgram> program,
           std::shared_ptr<const WorkspacePool> workspaces)
      : api_(api), workspaces_(std::move(workspaces)), program_(std::move(program)) {}

  const DriverApi& api() const { return api_; }
  const PreparedProgram& program() const { return *program_; }
  const ExecutionPlan& plan() const { return program_->plan(); }
  /// Returns the pool for launches without a workspace of the caller; null for a plan that has no
  /// workspace at any size.
  const WorkspacePool* workspaces() const { return workspaces_.get(); }

  /// Makes the pool keep so many bytes, so that a launch with at most this workspace maps no
  /// memory. Waits for the GPU. Errors: as for `WorkspacePool::take`.
  Result<void> reserve_workspace(std::int64_t bytes) const;

  /// Checks the arguments and enqueues the plan's launches on `stream` (a CUstream). `tensors` and
  /// `scalars` are in the plan's order. `workspace` must have plan().workspace_bytes() bytes, and
  /// may be 0 if that is 0. A launch allocates nothing and takes no lock.
  Result<void> launch(void* stream, std::span<const DevicePointer> tensors,
                      std::span<const double> scalars, DevicePointer workspace) const;

 private:
  const DriverApi& api_;
  std::shared_ptr<const WorkspacePool> workspaces_;
  std::unique_ptr<PreparedProgram> program_;
};

}  // namespace kernwright
