#include "fake_driver.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <elf.h>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace kernwright {
namespace {

FakeDriver* driver = nullptr;

template <typename Handle>
std::uint64_t number(Handle handle) {
  if constexpr (std::is_pointer_v<Handle>) {
    return reinterpret_cast<std::uint64_t>(handle);
  } else {
    return handle;
  }
}

template <typename Config>
std::vector<unsigned int> geometry(const Config& c) {
  return {c.gridDimX,  c.gridDimY,  c.gridDimZ,      c.blockDimX,
          c.blockDimY, c.blockDimZ, c.sharedMemBytes};
}

/// A kernel's handle is the address of its entry in `FakeDriver::kernels`.
using ScriptedKernel = std::pair<const std::string, std::vector<std::size_t>>;

FakeDriver::Launch make_launch(const void* kernel, void** arguments) {
  const auto& [name, sizes] = *static_cast<const ScriptedKernel*>(kernel);
  FakeDriver::Launch launch;
  launch.kernel = name;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto* bytes = static_cast<const std::byte*>(arguments[i]);
    launch.arguments.emplace_back(bytes, bytes + sizes[i]);
  }
  return launch;
}

}  // namespace

std::uint64_t FakeDriver::Launch::value(std::size_t argument) const {
  std::uint64_t value = 0;
  const std::vector<std::byte>& bytes = arguments.at(argument);
  std::memcpy(&value, bytes.data(), std::min(sizeof(value), bytes.size()));
  return value;
}

CUresult FakeDriver::enter(const char* function) {
  calls.emplace_back(function);
  static const std::set<std::string> unsafe{
      "cuLibraryLoadData", "cuLibraryUnload", "cuMemAlloc",
      "cuMemFree",         "cuMemPoolCreate", "cuMemPoolDestroy",
      "cuMemHostAlloc",    "cuMemFreeHost",   "cuStreamSynchronize"};
  if (capture_status == CU_STREAM_CAPTURE_STATUS_ACTIVE &&
      capture_mode != CU_STREAM_CAPTURE_MODE_RELAXED && unsafe.contains(function)) {
    capture_status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  const auto failure = failures.find(function);
  return failure == failures.end() ? CUDA_SUCCESS : failure->second;
}

template <typename Handle>
CUresult FakeDriver::create(const char* function, const char* kind, Handle* handle) {
  if (const CUresult result = enter(function); result != CUDA_SUCCESS) return result;
  next_handle_ += 0x1000;
  if constexpr (std::is_pointer_v<Handle>) {
    *handle = reinterpret_cast<Handle>(next_handle_);
  } else {
    *handle = static_cast<Handle>(next_handle_);
  }
  kinds_[next_handle_] = kind;
  alive.insert(kind);
  return CUDA_SUCCESS;
}

template <typename Handle>
CUresult FakeDriver::destroy(const char* function, Handle handle) {
  const CUresult result = enter(function);
  const auto kind = kinds_.find(number(handle));
  if (kind == kinds_.end()) {
    ++destroyed_twice;
    return CUDA_ERROR_INVALID_HANDLE;
  }
  alive.erase(alive.find(kind->second));
  kinds_.erase(kind);
  return result;
}

void FakeDriver::end_graph(cuuint64_t of_capture) {
  const auto ended = at_end_.extract(of_capture);
  for (const auto& call : ended.mapped()) call();
}

void FakeDriver::change_node(CUgraphNode node, const std::function<void(Launch&)>& change) {
  for (Launch& launch : launches) {
    if (launch.node == node) change(launch);
  }
  for (auto& [graph, nodes] : graphs_) {
    for (Launch& launch : nodes) {
      if (launch.node == node) change(launch);
    }
  }
}

void FakeDriver::write_stamp(const Launch& launch) {
  std::uint64_t* to = nullptr;
  std::memcpy(static_cast<void*>(&to), launch.arguments[0].data(), sizeof(to));
  std::copy(stamp.begin(), stamp.end(), to);
  for (std::size_t i = 0; i < stamp.size(); ++i) stamp[i] += stamp_step[i];
}

std::string FakeDriver::cubin() {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  std::string bits(sizeof(header), '\0');
  std::memcpy(bits.data(), &header, sizeof(header));
  return bits;
}

FakeDriver::~FakeDriver() {
  while (!at_end_.empty()) end_graph(at_end_.begin()->first);
  driver = nullptr;
}

FakeDriver::FakeDriver() {
  driver = this;
  device_attributes[CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN] = 232'448;
  device_attributes[CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS] = 1;
  device_attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR] = 9;
  device_attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT] = 132;
  device_attributes[CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED] = 1;

  api_.get_error_name = [](CUresult result, const char** text) {
    *text = result == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_OTHER";
    return CUDA_SUCCESS;
  };
  api_.get_error_string = [](CUresult result, const char** text) {
    *text = result == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : "other";
    return CUDA_SUCCESS;
  };
  api_.driver_get_version = [](int* version) { return *version = 13'000, CUDA_SUCCESS; };
  api_.device_get_count = [](int* count) { return *count = 1, CUDA_SUCCESS; };
  api_.device_get = [](CUdevice* device, int ordinal) {
    *device = ordinal;
    return ordinal == 0 ? driver->enter("cuDeviceGet") : CUDA_ERROR_INVALID_DEVICE;
  };
  api_.device_get_name = [](char* name, int length, CUdevice) {
    std::strncpy(name, "Fake GPU", static_cast<std::size_t>(length));
    return CUDA_SUCCESS;
  };
  api_.device_get_uuid = [](CUuuid* uuid, CUdevice) {
    for (int i = 0; i < 16; ++i) uuid->bytes[i] = static_cast<char>(0xa0 + i);
    return CUDA_SUCCESS;
  };
  api_.device_total_mem = [](std::size_t* bytes, CUdevice) {
    return *bytes = std::size_t{1} << 37, CUDA_SUCCESS;
  };
  api_.device_get_attribute = [](int* value, CUdevice_attribute id, CUdevice) {
    *value = driver->device_attributes[id];
    return CUDA_SUCCESS;
  };

  api_.primary_context_retain = [](CUcontext* context, CUdevice) {
    *context = reinterpret_cast<CUcontext>(0xc0);
    return driver->enter("cuDevicePrimaryCtxRetain");
  };
  api_.context_get_current = [](CUcontext* context) {
    return *context = driver->current, CUDA_SUCCESS;
  };
  api_.context_get_device = [](CUdevice* device) {
    return *device = driver->current_device,
           driver->current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
  };
  api_.context_push_current = [](CUcontext context) {
    driver->pushed_.push_back(driver->current);
    return driver->current = context, CUDA_SUCCESS;
  };
  api_.context_pop_current = [](CUcontext* context) {
    *context = driver->current;
    driver->current = driver->pushed_.back();
    return driver->pushed_.pop_back(), CUDA_SUCCESS;
  };

  api_.mem_get_info = [](std::size_t* free, std::size_t* total) {
    *free = std::size_t{3} << 30;
    *total = std::size_t{1} << 37;
    return CUDA_SUCCESS;
  };
  api_.mem_alloc = [](CUdeviceptr* address, std::size_t) {
    return driver->create("cuMemAlloc", "memory", address);
  };
  api_.mem_free = [](CUdeviceptr address) { return driver->destroy("cuMemFree", address); };
  api_.mem_pool_create = [](CUmemoryPool* pool, const CUmemPoolProps*) {
    return driver->create("cuMemPoolCreate", "memory pool", pool);
  };
  api_.mem_pool_destroy = [](CUmemoryPool pool) {
    return driver->destroy("cuMemPoolDestroy", pool);
  };
  api_.mem_pool_set_attribute = [](CUmemoryPool, CUmemPool_attribute, void* value) {
    std::memcpy(&driver->pool_keeps, value, sizeof driver->pool_keeps);
    return driver->enter("cuMemPoolSetAttribute");
  };
  api_.mem_alloc_from_pool_async = [](CUdeviceptr* address, std::size_t bytes, CUmemoryPool,
                                      CUstream stream) {
    const CUresult result = driver->create("cuMemAllocFromPoolAsync", "pool memory", address);
    if (result == CUDA_SUCCESS) driver->pool_memory.push_back({*address, bytes, stream, nullptr});
    return result;
  };
  api_.mem_free_async = [](CUdeviceptr address, CUstream stream) {
    for (PoolMemory& memory : driver->pool_memory) {
      if (memory.address == address) memory.returned_on = stream;
    }
    return driver->destroy("cuMemFreeAsync", address);
  };
  api_.mem_host_alloc = [](void** memory, std::size_t bytes, unsigned int) {
    std::vector<std::uint64_t> words((bytes + 7) / 8);
    *memory = words.data();
    driver->host_memory_.emplace(*memory, std::move(words));
    driver->alive.insert("host memory");
    if (!driver->gate_word) driver->gate_word = static_cast<cuuint32_t*>(*memory);
    return driver->enter("cuMemHostAlloc");
  };
  api_.mem_host_get_device_pointer = [](CUdeviceptr* address, void* memory, unsigned int) {
    return *address = number(memory), CUDA_SUCCESS;
  };
  api_.mem_free_host = [](void* memory) {
    driver->host_memory_.erase(memory);
    driver->alive.erase(driver->alive.find("host memory"));
    return driver->enter("cuMemFreeHost");
  };
  api_.mem_get_allocation_granularity = [](std::size_t* bytes, const CUmemAllocationProp*,
                                           CUmemAllocationGranularity_flags) {
    return *bytes = 0x1000, CUDA_SUCCESS;
  };
  api_.mem_create = [](CUmemGenericAllocationHandle* handle, std::size_t,
                       const CUmemAllocationProp*, unsigned long long) {
    return driver->create("cuMemCreate", "pages", handle);
  };
  api_.mem_release = [](CUmemGenericAllocationHandle handle) {
    return driver->destroy("cuMemRelease", handle);
  };
  api_.mem_address_reserve = [](CUdeviceptr* address, std::size_t bytes, std::size_t, CUdeviceptr,
                                unsigned long long) {
    const CUresult result = driver->create("cuMemAddressReserve", "addresses", address);
    if (result == CUDA_SUCCESS) driver->reserved.push_back({*address, bytes});
    return result;
  };
  api_.mem_address_free = [](CUdeviceptr address, std::size_t) {
    return driver->destroy("cuMemAddressFree", address);
  };
  api_.mem_map = [](CUdeviceptr address, std::size_t bytes, std::size_t,
                    CUmemGenericAllocationHandle, unsigned long long) {
    const CUresult result = driver->enter("cuMemMap");
    if (result != CUDA_SUCCESS) return result;
    driver->mapped.push_back({address, bytes});
    driver->alive.insert("mapping");
    return result;
  };
  api_.mem_unmap = [](CUdeviceptr, std::size_t) {
    driver->alive.erase(driver->alive.find("mapping"));
    return driver->enter("cuMemUnmap");
  };
  api_.mem_set_access = [](CUdeviceptr, std::size_t, const CUmemAccessDesc*, std::size_t) {
    return driver->enter("cuMemSetAccess");
  };
  api_.memcpy_htod_async = [](CUdeviceptr, const void*, std::size_t, CUstream) {
    return driver->enter("cuMemcpyHtoDAsync");
  };
  api_.memcpy_dtoh_async = [](void* to, CUdeviceptr from, std::size_t bytes, CUstream) {
    if (const auto held = driver->integers.find(from); held != driver->integers.end()) {
      std::memcpy(to, held->second.data(), std::min(bytes, held->second.size() * sizeof(int)));
    }
    return driver->enter("cuMemcpyDtoHAsync");
  };
  api_.memset_d8_async = [](CUdeviceptr to, unsigned char, std::size_t bytes, CUstream) {
    driver->fills.push_back({to, bytes, false, nullptr});
    return driver->enter("cuMemsetD8Async");
  };

  api_.pointer_get_attribute = [](void* value, CUpointer_attribute, CUdeviceptr address) {
    *static_cast<CUdeviceptr*>(value) = address;
    return driver->unreachable.count(address) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  };

  api_.stream_create = [](CUstream* stream, unsigned int) {
    const CUresult result = driver->create("cuStreamCreate", "stream", stream);
    if (!driver->main_stream_) driver->main_stream_ = *stream;
    return result;
  };
  api_.stream_destroy = [](CUstream stream) { return driver->destroy("cuStreamDestroy", stream); };
  api_.stream_query = [](CUstream stream) {
    return stream == driver->main_stream_ ? driver->stream_state : driver->side_stream_state;
  };
  api_.stream_synchronize = [](CUstream) { return driver->enter("cuStreamSynchronize"); };
  api_.stream_is_capturing = [](CUstream, CUstreamCaptureStatus* status) {
    return *status = driver->capture_status, driver->enter("cuStreamIsCapturing");
  };
  api_.stream_get_capture_info = [](CUstream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                    CUgraph* graph, const CUgraphNode**, const CUgraphEdgeData**,
                                    std::size_t*) {
    *status = driver->capture_status;
    if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
    *id = driver->capture;
    *graph = reinterpret_cast<CUgraph>(driver->capture);
    return CUDA_SUCCESS;
  };
  api_.stream_get_id = [](CUstream stream, unsigned long long* id) {
    if (driver->capture_status != CU_STREAM_CAPTURE_STATUS_NONE) {
      driver->capture_status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;  // in any mode
      return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    const auto other = driver->stream_ids.find(stream);
    *id = other == driver->stream_ids.end() ? number(stream) : other->second;
    return CUDA_SUCCESS;
  };
  api_.stream_get_context = [](CUstream, CUcontext* context) {
    *context = driver->stream_context ? driver->stream_context : driver->current;
    return CUDA_SUCCESS;
  };
  api_.exchange_capture_mode = [](CUstreamCaptureMode* mode) {
    return std::swap(*mode, driver->capture_mode), CUDA_SUCCESS;
  };
  api_.stream_wait_value32 = [](CUstream, CUdeviceptr, cuuint32_t value, unsigned int) {
    driver->gate_value = value;
    return driver->enter("cuStreamWaitValue32");
  };
  api_.event_create = [](CUevent* event, unsigned int) {
    return driver->create("cuEventCreate", "event", event);
  };
  api_.event_destroy = [](CUevent event) { return driver->destroy("cuEventDestroy", event); };
  api_.event_record = [](CUevent, CUstream) { return driver->enter("cuEventRecord"); };
  api_.event_elapsed_time = [](float* ms, CUevent, CUevent) {
    return *ms = driver->elapsed_ms, CUDA_SUCCESS;
  };

  api_.library_load_data = [](CUlibrary* library, const void*, CUjit_option*, void**, unsigned int,
                              CUlibraryOption*, void**, unsigned int) {
    return driver->create("cuLibraryLoadData", "library", library);
  };
  api_.library_unload = [](CUlibrary library) {
    return driver->destroy("cuLibraryUnload", library);
  };
  api_.library_get_kernel = [](CUkernel* kernel, CUlibrary, const char* name) {
    const auto entry = driver->kernels.find(name);
    if (entry == driver->kernels.end()) return CUDA_ERROR_NOT_FOUND;
    *kernel = reinterpret_cast<CUkernel>(&*entry);
    return CUDA_SUCCESS;
  };
  api_.kernel_get_function = [](CUfunction* function, CUkernel kernel) {
    return *function = reinterpret_cast<CUfunction>(kernel), CUDA_SUCCESS;
  };
  api_.function_load = [](CUfunction) { return driver->enter("cuFuncLoad"); };
  api_.kernel_get_attribute = [](int* value, CUfunction_attribute id, CUkernel, CUdevice) {
    return *value = driver->kernel_attributes[id], CUDA_SUCCESS;
  };
  api_.kernel_set_attribute = [](CUfunction_attribute id, int value, CUkernel, CUdevice) {
    driver->set_attributes[id] = value;
    return driver->enter("cuKernelSetAttribute");
  };
  api_.kernel_get_param_info = [](CUkernel kernel, std::size_t index, std::size_t*,
                                  std::size_t* bytes) {
    if (!driver->current) return CUDA_ERROR_INVALID_CONTEXT;  // as driver 580 does
    const auto& sizes = reinterpret_cast<const ScriptedKernel*>(kernel)->second;
    if (index >= sizes.size()) return CUDA_ERROR_INVALID_VALUE;
    return *bytes = sizes[index], CUDA_SUCCESS;
  };
  api_.launch_kernel_ex = [](const CUlaunchConfig* config, CUfunction kernel, void** arguments,
                             void**) {
    if (const CUresult result = driver->enter("cuLaunchKernelEx"); result != CUDA_SUCCESS) {
      return result;
    }
    Launch launch = make_launch(kernel, arguments);
    launch.geometry = geometry(*config);
    for (unsigned int i = 0; i < config->numAttrs; ++i) {
      launch.attributes[config->attrs[i].id] = config->attrs[i].value;
    }
    launch.stream = config->hStream;
    if (launch.kernel == "kernwright_stamp") driver->write_stamp(launch);
    driver->launches.push_back(std::move(launch));
    return CUDA_SUCCESS;
  };
  api_.tensor_map_encode_tiled =
      [](CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
         const cuuint64_t* dims, const cuuint64_t* strides, const cuuint32_t* box,
         const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
         CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill) {
        if (number(map) % 64 != 0) return CUDA_ERROR_INVALID_VALUE;
        std::memset(map, 0x5a, sizeof(*map));
        map->opaque[0] = number(address);
        driver->encodings.push_back({type,
                                     {dims, dims + rank},
                                     {strides, strides + rank - 1},
                                     {box, box + rank},
                                     swizzle,
                                     promotion});
        return driver->enter("cuTensorMapEncodeTiled");
      };
  api_.tensor_map_replace_address = [](CUtensorMap* map, void* address) {
    if (number(map) % 64 != 0 || number(address) % 16 != 0) return CUDA_ERROR_INVALID_VALUE;
    map->opaque[0] = number(address);
    return CUDA_SUCCESS;
  };

  api_.graph_create = [](CUgraph* graph, unsigned int) {
    return driver->create("cuGraphCreate", "graph", graph);
  };
  api_.graph_destroy = [](CUgraph graph) { return driver->destroy("cuGraphDestroy", graph); };
  api_.graph_add_kernel_node = [](CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                                  std::size_t count, const CUDA_KERNEL_NODE_PARAMS* params) {
    if (const CUresult result = driver->enter("cuGraphAddKernelNode"); result != CUDA_SUCCESS) {
      return result;
    }
    *node = reinterpret_cast<CUgraphNode>(driver->next_handle_ += 16);
    Launch launch = make_launch(params->func, params->kernelParams);
    launch.geometry = geometry(*params);
    launch.in_graph = true;
    launch.node = *node;
    launch.after.assign(after, after + count);
    driver->graphs_[graph].push_back(launch);
    driver->launches.push_back(std::move(launch));
    return CUDA_SUCCESS;
  };
  api_.graph_kernel_node_set_attribute = [](CUgraphNode node, CUlaunchAttributeID id,
                                            const CUlaunchAttributeValue* value) {
    driver->change_node(node, [&](Launch& launch) { launch.attributes[id] = *value; });
    return CUDA_SUCCESS;
  };
  api_.graph_add_memset_node = [](CUgraphNode* node, CUgraph, const CUgraphNode*, std::size_t,
                                  const CUDA_MEMSET_NODE_PARAMS* params, CUcontext) {
    *node = reinterpret_cast<CUgraphNode>(driver->next_handle_ += 16);
    driver->fills.push_back({params->dst, params->width * params->elementSize, true, *node});
    return driver->enter("cuGraphAddMemsetNode");
  };
  api_.graph_add_dependencies = [](CUgraph, const CUgraphNode* from, const CUgraphNode* to,
                                   const CUgraphEdgeData* edges, std::size_t) {
    if (edges->type != CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC ||
        edges->from_port != CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    driver->change_node(*to, [&](Launch& launch) { launch.programmatic_after = *from; });
    return CUDA_SUCCESS;
  };
  api_.graph_instantiate = [](CUgraphExec* exec, CUgraph graph, unsigned long long) {
    const CUresult result = driver->create("cuGraphInstantiate", "executable graph", exec);
    if (result == CUDA_SUCCESS) driver->executables[*exec] = driver->graphs_[graph];
    return result;
  };
  api_.graph_exec_kernel_node_set_params = [](CUgraphExec exec, CUgraphNode node,
                                              const CUDA_KERNEL_NODE_PARAMS* params) {
    if (const CUresult result = driver->enter("cuGraphExecKernelNodeSetParams");
        result != CUDA_SUCCESS) {
      return result;
    }
    for (Launch& launch : driver->executables[exec]) {
      if (launch.node != node) continue;
      launch.arguments = make_launch(params->func, params->kernelParams).arguments;
      return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
  };
  api_.graph_upload = [](CUgraphExec, CUstream) { return driver->enter("cuGraphUpload"); };
  api_.graph_launch = [](CUgraphExec exec, CUstream) {
    driver->graph_launches.push_back(exec);
    auto ends = std::chrono::steady_clock::now();
    for (const Launch& launch : driver->executables[exec]) {
      if (driver->takes) ends += driver->takes(launch);
    }
    while (std::chrono::steady_clock::now() < ends) {
    }
    const auto limit = std::chrono::steady_clock::now() + std::chrono::minutes(5);
    while (driver->launches_wait && driver->gate_word &&
           std::atomic_ref(*driver->gate_word).load() < driver->gate_value) {
      if (std::chrono::steady_clock::now() > limit) return CUDA_ERROR_LAUNCH_TIMEOUT;
      std::this_thread::yield();
    }
    if (!driver->gate_word || std::atomic_ref(*driver->gate_word).load() >= driver->gate_value) {
      ++driver->open_launches;
    }
    return driver->enter("cuGraphLaunch");
  };
  api_.graph_exec_destroy = [](CUgraphExec exec) {
    return driver->destroy("cuGraphExecDestroy", exec);
  };
  api_.user_object_create = [](CUuserObject* object, void* given, CUhostFn end, unsigned int,
                               unsigned int) {
    const CUresult result = driver->enter("cuUserObjectCreate");
    if (result != CUDA_SUCCESS) return result;
    *object = reinterpret_cast<CUuserObject>(driver->next_handle_ += 16);
    driver->user_objects_[*object] = [end, given] { end(given); };
    return CUDA_SUCCESS;
  };
  api_.user_object_release = [](CUuserObject object, unsigned int) {
    driver->user_objects_.extract(object).mapped()();
    return CUDA_SUCCESS;
  };
  api_.graph_retain_user_object = [](CUgraph graph, CUuserObject object, unsigned int,
                                     unsigned int) {
    const CUresult result = driver->enter("cuGraphRetainUserObject");
    if (result != CUDA_SUCCESS) return result;
    driver->at_end_[reinterpret_cast<cuuint64_t>(graph)].push_back(
        driver->user_objects_.extract(object).mapped());
    return CUDA_SUCCESS;
  };
}

}  // namespace kernwright
