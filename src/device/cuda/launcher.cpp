#include "device/cuda/launcher.h"

#include <optional>
#include <utility>

#include "device/cuda/driver_device.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {

Result<void> Launcher::launch(void* stream, std::span<const DevicePointer> tensors,
                              std::span<const double> scalars, DevicePointer workspace) const {
  const ArgumentView arguments(tensors, scalars, workspace);
  KW_TRY(check_arguments(plan(), arguments));
  const DriverStatus status =
      program_->enqueue(static_cast<CUstream>(stream), arguments, program_->starts_early());
  if (!status) return driver_error(api_, status);
  return {};
}

namespace {

/// Makes the primary context of the GPU current, which launches will most likely use, unless the
/// caller has one of this GPU.
Result<void> enter_context(const DriverApi& api, CUdevice device,
                           std::optional<ContextScope>& scope) {
  CUcontext current = nullptr;
  CUdevice of_current = device;
  DriverStatus status{"cuCtxGetCurrent", api.context_get_current(&current)};
  if (status && current) status = {"cuCtxGetDevice", api.context_get_device(&of_current)};
  if (!status) return driver_error(api, status);
  if (current && of_current == device) return {};
  KW_ASSIGN(const CUcontext context, primary_context(api, device));
  scope.emplace(api, context);
  return scope->status() ? Result<void>() : driver_error(api, scope->status());
}

/// Makes a launcher of the program that `prepare` returns. Without `workspaces` it takes the GPU's
/// pool if its plan has workspaces.
template <typename Prepare>
Result<std::unique_ptr<Launcher>> prepare_launcher(const DriverApi& api, CUdevice device,
                                                   std::shared_ptr<const WorkspacePool> workspaces,
                                                   const Prepare& prepare) {
  // Making the workspace pool ends every capture of this thread, and each of mode global.
  const OutsideOfCaptures loads(api);
  if (!loads) return Error{ErrorCode::unavailable, "nothing is loaded while the process exits"};
  // Encoding tensor maps, loading code and asking for a kernel's parameters needs a context (with
  // driver 580, cuKernelGetParamInfo fails with CUDA_ERROR_INVALID_CONTEXT).
  std::optional<ContextScope> scope;
  KW_TRY(enter_context(api, device, scope));
  KW_ASSIGN(std::unique_ptr<PreparedProgram> program, prepare());
  if (workspaces == nullptr && !program->plan().workspaces.empty()) {
    workspaces = WorkspacePool::of(api, device);
  }
  // Called again, because the driver registers exit handlers of its own once it has a context and
  // code.
  [[maybe_unused]] static const bool heeded = heed_exit();
  return std::make_unique<Launcher>(api, std::move(program), std::move(workspaces));
}

}  // namespace

Result<std::unique_ptr<Launcher>> load_launcher(const DriverApi& api, std::string_view cubin,
                                                const ExecutionPlan& plan, int ordinal) {
  CUdevice device = 0;
  DriverStatus status{"cuDeviceGet", api.device_get(&device, ordinal)};
  if (!status) {
    return Error{ErrorCode::unavailable,
                 concat("GPU ", ordinal, ": ", driver_error(api, status).message)};
  }
  return prepare_launcher(api, device, nullptr, [&]() -> Result<std::unique_ptr<PreparedProgram>> {
    KW_ASSIGN(std::shared_ptr<LoadedLibrary> library, LoadedLibrary::share(api, cubin, status));
    return PreparedProgram::load(api, device, std::move(library),
                                 std::make_shared<const CompactPlan>(plan), status);
  });
}

Result<std::unique_ptr<Launcher>> Launcher::with(std::shared_ptr<const CompactPlan> plan) const {
  DriverStatus status;
  if (!program_->asks_for(*plan)) {
    KW_ASSIGN(auto program, program_->with(std::move(plan), status));
    return std::make_unique<Launcher>(api_, std::move(program), workspaces_);
  }
  return prepare_launcher(api_, program_->device(), workspaces_,
                          [&] { return program_->with(std::move(plan), status); });
}

Result<void> Launcher::reserve_workspace(std::int64_t bytes) const {
  const OutsideOfCaptures waits(api_);
  if (!waits || workspaces_ == nullptr || bytes == 0) return {};
  std::optional<ContextScope> scope;
  KW_TRY(enter_context(api_, program_->device(), scope));
  return workspaces_->reserve(bytes);
}

Result<std::unique_ptr<Launcher>> Launcher::load(std::string_view cubin, const ExecutionPlan& plan,
                                                 int ordinal) {
  KW_ASSIGN(const DriverApi* driver, load_driver());
  return load_launcher(*driver, cubin, plan, ordinal);
}

Result<bool> Launcher::in_capture(void* stream) {
  KW_ASSIGN(const DriverApi* driver, load_driver());
  return kernwright::in_capture(*driver, static_cast<CUstream>(stream));
}

}  // namespace kernwright
