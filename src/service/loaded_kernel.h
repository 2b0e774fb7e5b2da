#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/launcher.h"
#include "model/candidate.h"
#include <kernwright/kernel.h>

namespace kernwright {

/// What a `Kernel` refers to: a winner loaded on the device with its summary. Immutable. Without a
/// device (`launcher` null) it describes the kernel, and launching fails with `why_not`.
class LoadedKernel : public std::enable_shared_from_this<LoadedKernel> {
 public:
  LoadedKernel(KernelSummary summary, ExecutionPlan plan, std::unique_ptr<Launcher> launcher,
               Error why_not);

  Kernel handle() const { return Kernel(this); }

  const KernelSummary& summary() const { return summary_; }
  const std::vector<ArgumentInfo>& arguments() const { return arguments_; }
  std::int64_t workspace_bytes() const { return workspace_bytes_; }

  Result<void> launch(void* stream, const Arg* arguments, std::size_t count, void* workspace) const;

 private:
  Error bad_argument(std::size_t position, std::string_view problem) const;

  KernelSummary summary_;
  ExecutionPlan plan_;
  std::vector<ArgumentInfo> arguments_;
  std::int64_t workspace_bytes_ = 0;
  std::unique_ptr<Launcher> launcher_;
  Error why_not_;
};

}  // namespace kernwright
