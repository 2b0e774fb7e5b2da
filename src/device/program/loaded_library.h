#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "device/driver/driver.h"
#include "device/driver/handles.h"
#include "support/mutex.h"
#include <kernwright/result.h>

namespace kernwright {

/// A kernel of a library on a GPU, with what the driver says of it there.
struct DriverKernel {
  CUkernel kernel = nullptr;
  std::vector<std::size_t> parameter_bytes;  ///< of each parameter
  std::uint64_t max_threads = 0;             ///< of a block, by registers and launch bounds
  std::uint64_t static_smem = 0;             ///< bytes
  std::uint64_t smem_limit = 0;              ///< bytes that the GPU allows a block
};

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
  /// Returns the kernel called `name`, which stays as it is as long as the library. The driver is
  /// asked once, and needs a current context then. Errors: `invalid_argument` if there is none;
  /// `device` with the driver's message. `status` holds the call.
  Result<const DriverKernel*> kernel(const std::string& name, CUdevice device,
                                     DriverStatus& status);
  /// Sets an attribute of a kernel on a GPU, unless a program needed more of it before.
  DriverStatus raise(CUkernel kernel, CUdevice device, CUfunction_attribute attribute, int value);
  /// Makes the destructor leave the library loaded, see `DriverHandle::abandon`.
  void abandon() { library_.abandon(); }

 private:
  Result<DriverKernel> ask(const std::string& name, CUdevice device, DriverStatus& status) const;

  const DriverApi& api_;
  LibraryHandle library_;
  Mutex mutex_;
  std::map<std::pair<std::string, CUdevice>, DriverKernel> kernels_ KW_GUARDED_BY(mutex_);
  std::map<std::tuple<CUkernel, CUdevice, CUfunction_attribute>, int> raised_ KW_GUARDED_BY(mutex_);
};

}  // namespace kernwright
