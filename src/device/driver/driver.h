#pragma once

#include <cuda.h>
#include <string_view>

#include "model/result/measurement.h"
#include <kernwright/result.h>

namespace kernwright {

/// The functions of libcuda.so.1 that kernwright calls, by their versioned names. It is a plain
/// table, so that tests can replace the driver by functions of their own.
struct DriverApi {
  decltype(&cuInit) init = nullptr;
  decltype(&cuDriverGetVersion) driver_get_version = nullptr;
  decltype(&cuGetErrorName) get_error_name = nullptr;
  decltype(&cuGetErrorString) get_error_string = nullptr;

  decltype(&cuDeviceGetCount) device_get_count = nullptr;
  decltype(&cuDeviceGet) device_get = nullptr;
  decltype(&cuDeviceGetName) device_get_name = nullptr;
  decltype(&cuDeviceGetUuid_v2) device_get_uuid = nullptr;
  decltype(&cuDeviceTotalMem_v2) device_total_mem = nullptr;
  decltype(&cuDeviceGetAttribute) device_get_attribute = nullptr;

  decltype(&cuDevicePrimaryCtxRetain) primary_context_retain = nullptr;
  decltype(&cuCtxGetCurrent) context_get_current = nullptr;
  decltype(&cuCtxGetDevice) context_get_device = nullptr;
  decltype(&cuCtxPushCurrent_v2) context_push_current = nullptr;
  decltype(&cuCtxPopCurrent_v2) context_pop_current = nullptr;

  decltype(&cuMemGetInfo_v2) mem_get_info = nullptr;
  decltype(&cuMemAlloc_v2) mem_alloc = nullptr;
  decltype(&cuMemFree_v2) mem_free = nullptr;
  decltype(&cuMemPoolCreate) mem_pool_create = nullptr;
  decltype(&cuMemPoolDestroy) mem_pool_destroy = nullptr;
  decltype(&cuMemPoolSetAttribute) mem_pool_set_attribute = nullptr;
  decltype(&cuMemAllocFromPoolAsync) mem_alloc_from_pool_async = nullptr;
  decltype(&cuMemFreeAsync) mem_free_async = nullptr;
  decltype(&cuMemGetAllocationGranularity) mem_get_allocation_granularity = nullptr;
  decltype(&cuMemCreate) mem_create = nullptr;
  decltype(&cuMemRelease) mem_release = nullptr;
  decltype(&cuMemAddressReserve) mem_address_reserve = nullptr;
  decltype(&cuMemAddressFree) mem_address_free = nullptr;
  decltype(&cuMemMap) mem_map = nullptr;
  decltype(&cuMemUnmap) mem_unmap = nullptr;
  decltype(&cuMemSetAccess) mem_set_access = nullptr;
  decltype(&cuMemHostAlloc) mem_host_alloc = nullptr;
  decltype(&cuMemHostGetDevicePointer_v2) mem_host_get_device_pointer = nullptr;
  decltype(&cuMemFreeHost) mem_free_host = nullptr;
  decltype(&cuMemcpyHtoDAsync_v2) memcpy_htod_async = nullptr;
  decltype(&cuMemcpyDtoHAsync_v2) memcpy_dtoh_async = nullptr;
  decltype(&cuMemsetD8Async) memset_d8_async = nullptr;
  decltype(&cuPointerGetAttribute) pointer_get_attribute = nullptr;

  decltype(&cuStreamCreate) stream_create = nullptr;
  decltype(&cuStreamDestroy_v2) stream_destroy = nullptr;
  decltype(&cuStreamQuery) stream_query = nullptr;
  decltype(&cuStreamSynchronize) stream_synchronize = nullptr;
  decltype(&cuStreamIsCapturing) stream_is_capturing = nullptr;
  decltype(&cuStreamGetCaptureInfo_v3) stream_get_capture_info = nullptr;
  decltype(&cuStreamGetId) stream_get_id = nullptr;
  decltype(&cuStreamGetCtx) stream_get_context = nullptr;
  decltype(&cuThreadExchangeStreamCaptureMode) exchange_capture_mode = nullptr;
  decltype(&cuStreamWaitValue32_v2) stream_wait_value32 = nullptr;
  decltype(&cuEventCreate) event_create = nullptr;
  decltype(&cuEventDestroy_v2) event_destroy = nullptr;
  decltype(&cuEventRecord) event_record = nullptr;
  decltype(&cuEventElapsedTime) event_elapsed_time = nullptr;

  decltype(&cuLibraryLoadData) library_load_data = nullptr;
  decltype(&cuLibraryUnload) library_unload = nullptr;
  decltype(&cuLibraryGetKernel) library_get_kernel = nullptr;
  decltype(&cuKernelGetFunction) kernel_get_function = nullptr;
  decltype(&cuFuncLoad) function_load = nullptr;
  decltype(&cuKernelGetAttribute) kernel_get_attribute = nullptr;
  decltype(&cuKernelSetAttribute) kernel_set_attribute = nullptr;
  decltype(&cuKernelGetParamInfo) kernel_get_param_info = nullptr;
  decltype(&cuLaunchKernelEx) launch_kernel_ex = nullptr;
  decltype(&cuTensorMapEncodeTiled) tensor_map_encode_tiled = nullptr;
  decltype(&cuTensorMapReplaceAddress) tensor_map_replace_address = nullptr;

  decltype(&cuGraphCreate) graph_create = nullptr;
  decltype(&cuGraphDestroy) graph_destroy = nullptr;
  decltype(&cuGraphAddKernelNode_v2) graph_add_kernel_node = nullptr;
  decltype(&cuGraphKernelNodeSetAttribute) graph_kernel_node_set_attribute = nullptr;
  decltype(&cuGraphAddMemsetNode) graph_add_memset_node = nullptr;
  decltype(&cuGraphAddDependencies_v2) graph_add_dependencies = nullptr;
  decltype(&cuGraphInstantiateWithFlags) graph_instantiate = nullptr;
  decltype(&cuGraphUpload) graph_upload = nullptr;
  decltype(&cuGraphLaunch) graph_launch = nullptr;
  decltype(&cuGraphExecKernelNodeSetParams) graph_exec_kernel_node_set_params = nullptr;
  decltype(&cuGraphExecDestroy) graph_exec_destroy = nullptr;
  decltype(&cuGraphRetainUserObject) graph_retain_user_object = nullptr;
  decltype(&cuUserObjectCreate) user_object_create = nullptr;
  decltype(&cuUserObjectRelease) user_object_release = nullptr;
};

/// Returns the driver of this process. It is loaded and initialised on the first call and never
/// unloaded. Errors: `unavailable` if there is no libcuda.so.1, a driver older than CUDA 12.4, or
/// no GPU.
Result<const DriverApi*> load_driver();

/// Returns true in a process that was forked after the driver was loaded: it cannot be used there.
bool driver_left_behind();

/// The result of a driver call, with the call's name. True if it succeeded.
struct DriverStatus {
  const char* function = "";
  CUresult result = CUDA_SUCCESS;

  explicit operator bool() const { return result == CUDA_SUCCESS; }
};

/// Returns whether `stream` is in a capture, which may be valid no longer. Also true for the legacy
/// default stream while another stream's capture forbids work on it. False if the thread has no
/// context. Asking ends no capture. Errors: `device`.
Result<bool> in_capture(const DriverApi& api, CUstream stream);

/// Added to the message of a call that failed because there is no current context.
inline constexpr std::string_view kNoContext =
    "no CUDA context is current in the calling thread; call cuCtxSetCurrent or cudaSetDevice in it "
    "first";

/// Returns the error `device` of a failed call, "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (out of
/// memory)", with `kNoContext` if that is the reason.
Error driver_error(const DriverApi& api, const DriverStatus& status);

/// Returns the primary context of a GPU, and keeps it for the rest of the process, as the CUDA
/// runtime does. Its last release would destroy it, which takes seconds while other processes use
/// the GPU, and making it again is slow too. Errors: `device`.
Result<CUcontext> primary_context(const DriverApi& api, CUdevice device);

/// Returns what a failed driver call means for the candidate that made it.
Outcome outcome_of(CUresult result);

/// Returns whether every later call in the same context will fail too.
bool poisons_context(CUresult result);

}  // namespace kernwright
