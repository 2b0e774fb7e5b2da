#include "device/program/workspace_pool.h"

#include <limits>
#include <map>
#include <mutex>
#include <utility>

#include "support/text.h"
#include "support/try.h"

namespace kernwright {

std::shared_ptr<const WorkspacePool> WorkspacePool::of(const DriverApi& api, CUdevice device) {
  using Pools = std::map<std::pair<const DriverApi*, CUdevice>, std::weak_ptr<const WorkspacePool>>;
  static std::mutex mutex;
  static auto& pools = *new Pools;
  const std::lock_guard lock(mutex);
  std::weak_ptr<const WorkspacePool>& known = pools[{&api, device}];
  std::shared_ptr<const WorkspacePool> pool = known.lock();
  if (!pool) {
    pool = std::make_shared<const WorkspacePool>(api, device);
    known = pool;
  }
  return pool;
}

WorkspacePool::WorkspacePool(const DriverApi& api, CUdevice device)
    : api_(api), device_(device), pool_(make()), zeros_(api) {}

Result<MemoryPoolHandle> WorkspacePool::make() const {
  int supported = 0;
  DriverStatus status{
      "cuDeviceGetAttribute",
      api_.device_get_attribute(&supported, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, device_)};
  if (!status) return driver_error(api_, status);
  if (supported == 0) {
    return Error{ErrorCode::unavailable, concat("GPU ", device_, " has no memory pools")};
  }
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device_;
  CUmemoryPool pool = nullptr;
  status = {"cuMemPoolCreate", api_.mem_pool_create(&pool, &properties)};
  if (!status) return driver_error(api_, status);
  MemoryPoolHandle owned(api_, pool);
  cuuint64_t kept = std::numeric_limits<cuuint64_t>::max();
  status = {"cuMemPoolSetAttribute",
            api_.mem_pool_set_attribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &kept)};
  if (!status) return driver_error(api_, status);
  return owned;
}

Result<DevicePointer> WorkspacePool::take(CUstream stream, std::int64_t bytes) const {
  if (!pool_) return pool_.error();
  CUdevice current = 0;
  DriverStatus status{"cuCtxGetDevice", api_.context_get_device(&current)};
  if (!status) return driver_error(api_, status);
  // Kernels of the current context could not access the pool's memory, and would fault.
  if (current != device_) {
    return Error{ErrorCode::invalid_argument,
                 concat("the thread's current CUDA context is of GPU ", current,
                        "; the kernel was loaded for GPU ", device_)};
  }
  CUdeviceptr address = 0;
  status = {"cuMemAllocFromPoolAsync",
            api_.mem_alloc_from_pool_async(&address, static_cast<std::size_t>(bytes), pool_->get(),
                                           stream)};
  if (!status) return driver_error(api_, status);
  return address;
}

Result<void> WorkspacePool::reserve(std::int64_t bytes) const {
  CUstream stream = nullptr;
  DriverStatus status{"cuStreamCreate", api_.stream_create(&stream, CU_STREAM_NON_BLOCKING)};
  if (!status) return driver_error(api_, status);
  const StreamHandle owned(api_, stream);
  KW_ASSIGN(const DevicePointer workspace, take(stream, bytes));
  status = give_back(stream, workspace);
  if (status) status = {"cuStreamSynchronize", api_.stream_synchronize(stream)};
  if (!status) return driver_error(api_, status);
  return {};
}

}  // namespace kernwright
