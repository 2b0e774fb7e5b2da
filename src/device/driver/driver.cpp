#include "device/driver/driver.h"

#include <atomic>
#include <pthread.h>

#include "support/libraries/dynamic_library.h"
#include "support/processes/process_exit.h"
#include "support/text.h"

namespace kernwright {
namespace {

/// Fills a table of functions from a library, and remembers the first one that is missing.
struct Binder {
  const DynamicLibrary& library;
  const char* missing = nullptr;

  template <typename Function>
  void operator()(const char* name, Function& function) {
    function = reinterpret_cast<Function>(library.symbol(name));
    if (!function && !missing) missing = name;
  }
};

const char* bind_all(const DynamicLibrary& library, DriverApi& api) {
  Binder bind{library};
  bind("cuInit", api.init);
  bind("cuDriverGetVersion", api.driver_get_version);
  bind("cuGetErrorName", api.get_error_name);
  bind("cuGetErrorString", api.get_error_string);
  bind("cuDeviceGetCount", api.device_get_count);
  bind("cuDeviceGet", api.device_get);
  bind("cuDeviceGetName", api.device_get_name);
  bind("cuDeviceGetUuid_v2", api.device_get_uuid);
  bind("cuDeviceTotalMem_v2", api.device_total_mem);
  bind("cuDeviceGetAttribute", api.device_get_attribute);
  bind("cuDevicePrimaryCtxRetain", api.primary_context_retain);
  bind("cuCtxGetCurrent", api.context_get_current);
  bind("cuCtxGetDevice", api.context_get_device);
  bind("cuCtxPushCurrent_v2", api.context_push_current);
  bind("cuCtxPopCurrent_v2", api.context_pop_current);
  bind("cuMemGetInfo_v2", api.mem_get_info);
  bind("cuMemAlloc_v2", api.mem_alloc);
  bind("cuMemFree_v2", api.mem_free);
  bind("cuMemPoolCreate", api.mem_pool_create);
  bind("cuMemPoolDestroy", api.mem_pool_destroy);
  bind("cuMemPoolSetAttribute", api.mem_pool_set_attribute);
  bind("cuMemAllocFromPoolAsync", api.mem_alloc_from_pool_async);
  bind("cuMemFreeAsync", api.mem_free_async);
  bind("cuMemGetAllocationGranularity", api.mem_get_allocation_granularity);
  bind("cuMemCreate", api.mem_create);
  bind("cuMemRelease", api.mem_release);
  bind("cuMemAddressReserve", api.mem_address_reserve);
  bind("cuMemAddressFree", api.mem_address_free);
  bind("cuMemMap", api.mem_map);
  bind("cuMemUnmap", api.mem_unmap);
  bind("cuMemSetAccess", api.mem_set_access);
  bind("cuMemHostAlloc", api.mem_host_alloc);
  bind("cuMemHostGetDevicePointer_v2", api.mem_host_get_device_pointer);
  bind("cuMemFreeHost", api.mem_free_host);
  bind("cuMemcpyHtoDAsync_v2", api.memcpy_htod_async);
  bind("cuMemcpyDtoHAsync_v2", api.memcpy_dtoh_async);
  bind("cuMemsetD8Async", api.memset_d8_async);
  bind("cuPointerGetAttribute", api.pointer_get_attribute);
  bind("cuStreamCreate", api.stream_create);
  bind("cuStreamDestroy_v2", api.stream_destroy);
  bind("cuStreamQuery", api.stream_query);
  bind("cuStreamSynchronize", api.stream_synchronize);
  bind("cuStreamIsCapturing", api.stream_is_capturing);
  bind("cuStreamGetCaptureInfo_v3", api.stream_get_capture_info);
  bind("cuStreamGetId", api.stream_get_id);
  bind("cuStreamGetCtx", api.stream_get_context);
  bind("cuThreadExchangeStreamCaptureMode", api.exchange_capture_mode);
  bind("cuStreamWaitValue32_v2", api.stream_wait_value32);
  bind("cuEventCreate", api.event_create);
  bind("cuEventDestroy_v2", api.event_destroy);
  bind("cuEventRecord", api.event_record);
  bind("cuEventElapsedTime", api.event_elapsed_time);
  bind("cuLibraryLoadData", api.library_load_data);
  bind("cuLibraryUnload", api.library_unload);
  bind("cuLibraryGetKernel", api.library_get_kernel);
  bind("cuKernelGetFunction", api.kernel_get_function);
  bind("cuFuncLoad", api.function_load);
  bind("cuKernelGetAttribute", api.kernel_get_attribute);
  bind("cuKernelSetAttribute", api.kernel_set_attribute);
  bind("cuKernelGetParamInfo", api.kernel_get_param_info);
  bind("cuLaunchKernelEx", api.launch_kernel_ex);
  bind("cuTensorMapEncodeTiled", api.tensor_map_encode_tiled);
  bind("cuTensorMapReplaceAddress", api.tensor_map_replace_address);
  bind("cuGraphCreate", api.graph_create);
  bind("cuGraphDestroy", api.graph_destroy);
  bind("cuGraphAddKernelNode_v2", api.graph_add_kernel_node);
  bind("cuGraphKernelNodeSetAttribute", api.graph_kernel_node_set_attribute);
  bind("cuGraphAddMemsetNode", api.graph_add_memset_node);
  bind("cuGraphAddDependencies_v2", api.graph_add_dependencies);
  bind("cuGraphInstantiateWithFlags", api.graph_instantiate);
  bind("cuGraphUpload", api.graph_upload);
  bind("cuGraphLaunch", api.graph_launch);
  bind("cuGraphExecKernelNodeSetParams_v2", api.graph_exec_kernel_node_set_params);
  bind("cuGraphExecDestroy", api.graph_exec_destroy);
  bind("cuGraphRetainUserObject", api.graph_retain_user_object);
  bind("cuUserObjectCreate", api.user_object_create);
  bind("cuUserObjectRelease", api.user_object_release);
  return bind.missing;
}

std::atomic<bool> left_behind{false};

Result<DriverApi> open_driver() {
  const BeforeExit opens(BeforeExit::Late::loads);  // cuInit too
  Result<DynamicLibrary> library = DynamicLibrary::open({"libcuda.so.1"});
  if (!library) return Error{ErrorCode::unavailable, "no CUDA driver: " + library.error().message};
  DriverApi api;
  if (const char* missing = bind_all(*library, api)) {
    return Error{ErrorCode::unavailable, concat(library->name(), " has no ", missing,
                                                ": the driver is older than CUDA 12.4's")};
  }
  if (const DriverStatus status{"cuInit", api.init(0)}; !status) {
    return Error{ErrorCode::unavailable, driver_error(api, status).message};
  }
  ::pthread_atfork(nullptr, nullptr, [] { left_behind = true; });
  heed_exit();
  return api;
}

}  // namespace

Result<const DriverApi*> load_driver() {
  static const auto& driver = *new Result<DriverApi>(open_driver());
  if (!driver) return driver.error();
  return &*driver;
}

bool driver_left_behind() { return left_behind; }

Error driver_error(const DriverApi& api, const DriverStatus& status) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (api.get_error_string(status.result, &text) != CUDA_SUCCESS || !text) text = "no description";
  // The driver may not know the name, as when it was updated after the library was loaded.
  const bool named = api.get_error_name(status.result, &name) == CUDA_SUCCESS && name;
  const bool may_lack_context =
      status.result == CUDA_ERROR_INVALID_CONTEXT || status.result == CUDA_ERROR_INVALID_HANDLE;
  CUcontext current = nullptr;
  const bool lacks_context =
      may_lack_context && api.context_get_current(&current) == CUDA_SUCCESS && current == nullptr;
  return {ErrorCode::device,
          concat(status.function, ": ",
                 named ? name : concat("error ", static_cast<int>(status.result)), " (", text, ")",
                 lacks_context ? ": " : "", lacks_context ? kNoContext : "")};
}

Result<CUcontext> primary_context(const DriverApi& api, CUdevice device) {
  CUcontext context = nullptr;
  const DriverStatus status{"cuDevicePrimaryCtxRetain",
                            api.primary_context_retain(&context, device)};
  if (!status) return driver_error(api, status);
  return context;
}

Result<bool> in_capture(const DriverApi& api, CUstream stream) {
  CUstreamCaptureStatus state = CU_STREAM_CAPTURE_STATUS_NONE;
  const DriverStatus asked{"cuStreamIsCapturing", api.stream_is_capturing(stream, &state)};
  if (asked.result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) return true;
  if (asked.result == CUDA_ERROR_INVALID_CONTEXT) return false;
  if (!asked) return driver_error(api, asked);
  return state != CU_STREAM_CAPTURE_STATUS_NONE;
}

Outcome outcome_of(CUresult result) {
  switch (result) {
    case CUDA_SUCCESS:
      return Outcome::ok;
    case CUDA_ERROR_OUT_OF_MEMORY:
      return Outcome::out_of_memory;
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
      return Outcome::illegal_address;
    case CUDA_ERROR_LAUNCH_TIMEOUT:
      return Outcome::timed_out;
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_SYSTEM_NOT_READY:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED:
      return Outcome::device_lost;
    default:
      return Outcome::launch_failed;
  }
}

bool poisons_context(CUresult result) {
  switch (result) {
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_UNKNOWN:
      return true;
    default:
      return outcome_of(result) == Outcome::device_lost;
  }
}

}  // namespace kernwright
