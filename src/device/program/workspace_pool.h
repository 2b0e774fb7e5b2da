#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "device/device.h"
#include "device/driver/handles.h"
#include "device/program/kept_zeros.h"
#include <kernwright/result.h>

namespace kernwright {

/// Memory of one GPU for launches. Workspaces for those that are called without one are taken and
/// returned in stream order. The GPU's default pool would return its memory to the system whenever
/// the host waits, and the next launch would have to map it again. So this is a pool of our own.
/// Thread-safe.
class WorkspacePool {
 public:
  /// Returns the pool that all kernels of the GPU share. It is destroyed with the last of them,
  /// which frees its memory. If the GPU or the driver has no memory pools, `take` returns the
  /// error.
  static std::shared_ptr<const WorkspacePool> of(const DriverApi& api, CUdevice device);

  WorkspacePool(const DriverApi& api, CUdevice device);

  /// Takes at least `bytes`, aligned to 256, for the work that is enqueued on `stream` until they
  /// are given back. In a stream capture they belong to the graph. Errors: `unavailable` if the GPU
  /// has no memory pools; `invalid_argument` if the current context is of another GPU; `device`.
  Result<DevicePointer> take(CUstream stream, std::int64_t bytes) const;

  /// Takes so many bytes and gives them back on a stream of its own, so that the pool has mapped
  /// them. Needs a current context, outside of captures. Errors: as for `take`.
  Result<void> reserve(std::int64_t bytes) const;

  /// Returns what launches on the stream may have in place of workspaces that are kept zero, or 0:
  /// see `KeptZeros`.
  DevicePointer zeros(CUstream stream, std::size_t bytes) const { return zeros_.of(stream, bytes); }

  DriverStatus give_back(CUstream stream, DevicePointer workspace) const {
    return {"cuMemFreeAsync", api_.mem_free_async(workspace, stream)};
  }

 private:
  Result<MemoryPoolHandle> make() const;

  const DriverApi& api_;
  CUdevice device_;
  Result<MemoryPoolHandle> pool_;
  KeptZeros zeros_;
};

}  // namespace kernwright
