#include "device/cuda/launcher.h"

#include <functional>
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

/// Prepares the plan on a GPU, with the library that `load_library` returns.
Result<std::unique_ptr<Launcher>> prepare_launcher(
    const DriverApi& api, CUdevice device, const ExecutionPlan& plan,
    const std::function<Result<std::shared_ptr<LoadedLibrary>>(DriverStatus&)>& load_library) {
  // Making the workspace pool ends every capture of this thread, and each of mode global.
  const OutsideOfCaptures loads(api);
  if (!loads) return Error{ErrorCode::unavailable, "nothing is loaded while the process exits"};
  // Encoding tensor maps and asking for a kernel's parameters needs a context (with driver 580,
  // cuKernelGetParamInfo fails with CUDA_ERROR_INVALID_CONTEXT). If the caller has none yet, it is
  // the primary one, which its launches will most likely use.
  std::optional<ContextScope> scope;
  CUcontext current = nullptr;
  DriverStatus status{"cuCtxGetCurrent", api.context_get_current(&current)};
  if (!status) return driver_error(api, status);
  if (!current) {
    KW_ASSIGN(const CUcontext context, primary_context(api, device));
    scope.emplace(api, context);
    if (!scope->status()) return driver_error(api, scope->status());
  }
  KW_ASSIGN(std::shared_ptr<LoadedLibrary> library, load_library(status));
  KW_ASSIGN(std::unique_ptr<PreparedProgram> program,
            PreparedProgram::load(api, device, std::move(library), plan, status));
  std::shared_ptr<const WorkspacePool> workspaces;
  if (plan.workspace_bytes() > 0) workspaces = WorkspacePool::of(api, device);
  // Called again, because the driver registers exit handlers of its own once it has a context and
  // code.
  [[maybe_unused]] static const bool heeded = heed_exit();
  return std::make_unique<Launcher>(api, std::move(program), std::move(workspaces));
}

}  // namespace

Result<std::unique_ptr<Launcher>> load_launcher(const DriverApi& api, std::string_view cubin,
                                                const ExecutionPlan& plan, int ordinal) {
  CUdevice device = 0;
  const DriverStatus status{"cuDeviceGet", api.device_get(&device, ordinal)};
  if (!status) {
    return Error{ErrorCode::unavailable,
                 concat("GPU ", ordinal, ": ", driver_error(api, status).message)};
  }
  return prepare_launcher(api, device, plan, [&](DriverStatus& of_load) {
    return LoadedLibrary::share(api, cubin, of_load);
  });
}

Result<std::unique_ptr<Launcher>> Launcher::with(const ExecutionPlan& plan) const {
  return prepare_launcher(api_, program_->device(), plan,
                          [this](DriverStatus&) -> Result<std::shared_ptr<LoadedLibrary>> {
                            return program_->library();
                          });
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
