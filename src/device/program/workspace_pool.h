#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "device/device.h"
#include "device/driver/handles.h"
#include <kernwright/result.h>

namespace kernwright {

/// Workspaces for launches that are given none: memory of one GPU, taken and given back in the
/// order of a stream. A pool of our own, since the GPU's default one gives its memory back to the
/// system whenever the host waits, and every launch after that would map it anew. Thread-safe.
class WorkspacePool {
 public:
  /// The pool that all kernels of the GPU share; it is gone with the last of them, which is when
  /// its memory is free for others. A GPU or a driver without memory pools is told by `take`.
  static std::shared_ptr<const WorkspacePool> of(const DriverApi& api, CUdevice device);

  WorkspacePool(const DriverApi& api, CUdevice device);

  /// At least `bytes`, aligned to 256, for what is enqueued on `stream` until it is given back. In
  /// a stream capture the graph holds them. Errors: `unavailable` where the GPU has no memory
  /// pools; `invalid_argument` where the current context is of another GPU; `device`.
  Result<DevicePointer> take(CUstream stream, std::int64_t bytes) const;

  DriverStatus give_back(CUstream stream, DevicePointer workspace) const {
    return {"cuMemFreeAsync", api_.mem_free_async(workspace, stream)};
  }

 private:
  Result<MemoryPoolHandle> make() const;

  const DriverApi& api_;
  CUdevice device_;
  Result<MemoryPoolHandle> pool_;
};

}  // namespace kernwright
