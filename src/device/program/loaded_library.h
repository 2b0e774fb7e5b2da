#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string_view>
#include <tuple>

#include "device/driver/driver.h"
#include "device/driver/handles.h"
#include "support/mutex.h"
#include <kernwright/result.h>

namespace kernwright {

/// A cubin that the driver has loaded. Programs of several problems share it, so that a further
/// size needs no load, which would wait for the kernels that run. Thread-safe.
class LoadedLibrary {
 public:
  using Load = Result<std::shared_ptr<LoadedLibrary>>(const DriverApi& api, std::string_view cubin,
                                                      DriverStatus& status);
  /// Loads the cubin. Errors: `corrupt` for a cubin that is not whole; `device` with the driver's
  /// message, and then `status` holds the call.
  static Load load;
  /// Returns the library of this process that has the same bits, or loads it.
  static Load share;

  LoadedLibrary(const DriverApi& api, CUlibrary library) : api_(api), library_(api, library) {}

  CUlibrary get() const { return library_.get(); }
  /// Sets an attribute of a kernel on a GPU, unless a program needed more of it before.
  DriverStatus raise(CUkernel kernel, CUdevice device, CUfunction_attribute attribute, int value);
  /// Makes the destructor leave the library loaded, see `DriverHandle::abandon`.
  void abandon() { library_.abandon(); }

 private:
  const DriverApi& api_;
  LibraryHandle library_;
  Mutex mutex_;
  std::map<std::tuple<CUkernel, CUdevice, CUfunction_attribute>, int> raised_ KW_GUARDED_BY(mutex_);
};

}  // namespace kernwright
