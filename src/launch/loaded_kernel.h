#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/cuda/launcher.h"
#include "model/candidate/candidate.h"
#include <kernwright/kernel.h>

namespace kernwright {

/// The checked arguments of one launch in the plan's order, on the caller's stack.
class BoundArguments {
 public:
  /// As many as any operation may have.
  static constexpr std::size_t kMaxTensors = 32;
  static constexpr std::size_t kMaxScalars = 32;

  ArgumentView view(DevicePointer workspace, DevicePointer zeros = 0) const {
    return {{tensors_.data(), tensor_count_}, {scalars_.data(), scalar_count_}, workspace, zeros};
  }

 private:
  friend class LoadedKernel;
  std::array<DevicePointer, kMaxTensors> tensors_;
  std::array<double, kMaxScalars> scalars_;
  std::size_t tensor_count_ = 0;
  std::size_t scalar_count_ = 0;
};

/// The kernel that a handle refers to: a winner that is loaded on the device, with its summary.
/// Immutable. Without a device `launcher` is null; the object then only describes the kernel, and
/// launching fails with `why_not`.
class LoadedKernel : public std::enable_shared_from_this<LoadedKernel> {
 public:
  LoadedKernel(KernelSummary summary, std::shared_ptr<const CompactPlan> plan,
               std::unique_ptr<Launcher> launcher, Error why_not, bool check_launches = false);
  virtual ~LoadedKernel() = default;
  LoadedKernel(const LoadedKernel&) = delete;
  LoadedKernel& operator=(const LoadedKernel&) = delete;

  Kernel handle() const { return Kernel(borrowed()); }
  BorrowedKernel borrowed() const { return BorrowedKernel(this); }
  static std::shared_ptr<const LoadedKernel> of(const BorrowedKernel& kernel);

  virtual const KernelSummary& summary() const { return summary_; }
  const std::vector<ArgumentInfo>& arguments() const;
  const ExecutionPlan& plan() const { return plan_->whole(); }
  std::int64_t workspace_bytes() const { return workspace_bytes_; }
  /// Returns null without a device.
  const Launcher* launcher() const { return launcher_.get(); }
  const Error& why_not() const { return why_not_; }

  /// Returns whether every launch asks the driver whether its memory can be accessed.
  bool checks_launches() const { return check_launches_; }

  /// Checks the number, kinds and alignment of arguments, and puts them into `bound`. Allocates
  /// only on failure.
  Result<void> bind(const Arg* arguments, std::size_t count, BoundArguments& bound) const;
  /// Does the same checks for the address of one tensor, which is not null. If `checks_launches`,
  /// its memory is checked too.
  Result<void> check_tensor(std::size_t tensor, DevicePointer address) const;
  /// Checks that the GPU can access the first and the last byte of each buffer of a launch.
  Result<void> check_memory(const BoundArguments& bound, DevicePointer workspace) const;
  /// Copies the tensors whose values the operation tells from the device, behind the work that is
  /// on `stream`, and checks them. If the stream is in a capture, there is nothing to look at yet.
  Result<void> check_device_values(CUstream stream, const BoundArguments& bound) const;

  Result<void> launch(void* stream, const Arg* arguments, std::size_t count, void* workspace) const;
  Result<void> launch_checked(void* stream, const Arg* arguments, std::size_t count,
                              void* workspace) const;
  Result<BakedLaunch> bake(const Arg* arguments, std::size_t count) const;

 private:
  Error bad_argument(std::size_t position, std::string_view problem) const;
  Error bad_count(std::size_t count) const;
  Error bad_tensor(std::size_t position, const Arg& given) const;
  Result<void> check_memory_of(std::size_t tensor, DevicePointer address) const;
  Result<std::vector<std::int64_t>> read_integers(CUstream stream, std::size_t tensor,
                                                  DevicePointer address) const;
  /// Launches. If the plan needs a workspace and the caller has none, one is taken from the pool.
  Result<void> enqueue(void* stream, const BoundArguments& bound, void* workspace) const;
  Result<void> enqueue_with_pool(CUstream stream, const BoundArguments& bound) const;
  Result<void> enqueue_at(CUstream stream, const BoundArguments& bound,
                          DevicePointer workspace) const;

  KernelSummary summary_;
  std::shared_ptr<const CompactPlan> plan_;
  mutable std::once_flag described_;
  mutable std::vector<ArgumentInfo> arguments_;  ///< once they were asked for
  Error why_not_;
  // The members that every launch reads are side by side.
  std::int64_t workspace_bytes_ = 0;
  /// For each tensor the bits below its alignment, which must be 0 in an address.
  std::span<const DevicePointer> crooked_bits_;
  std::span<const double> default_scalars_;
  const PreparedProgram* program_ = nullptr;  ///< the launcher's
  bool check_launches_;
  std::unique_ptr<Launcher> launcher_;
};

/// A kernel that is loaded when it is first used, so that finding it takes no time. Thread-safe.
class LazyKernel : public std::enable_shared_from_this<LazyKernel> {
 public:
  virtual ~LazyKernel() = default;
  LazyKernel(const LazyKernel&) = delete;
  LazyKernel& operator=(const LazyKernel&) = delete;

  /// Returns a handle that keeps this.
  BorrowedKernel borrowed() const;
  /// Loads the kernel, once.
  const LoadedKernel& loaded() const {
    const LoadedKernel* const ready = ready_.load(std::memory_order_acquire);
    return ready != nullptr ? *ready : load_once();
  }

 protected:
  LazyKernel() = default;
  /// Returns the kernel, never null: one whose launches fail if it cannot be loaded.
  virtual std::shared_ptr<const LoadedKernel> load() const = 0;

 private:
  const LoadedKernel& load_once() const;

  mutable std::once_flag once_;
  mutable std::shared_ptr<const LoadedKernel> kept_;
  mutable std::atomic<const LoadedKernel*> ready_{nullptr};
};

}  // namespace kernwright
