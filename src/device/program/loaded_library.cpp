#include "device/program/loaded_library.h"

#include <cstdint>
#include <cstring>
#include <elf.h>
#include <string>
#include <utility>

#include "support/hash.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

/// Checks that the cubin is complete: the driver takes no size, and would read past the end.
Result<void> check_cubin(std::string_view cubin) {
  Elf64_Ehdr header;
  const Error corrupt{ErrorCode::corrupt,
                      concat("cubin of ", cubin.size(), " bytes is not a whole ELF file")};
  if (cubin.size() < sizeof(header)) return corrupt;
  std::memcpy(&header, cubin.data(), sizeof(header));
  const std::uint64_t sections = std::uint64_t{header.e_shnum} * header.e_shentsize;
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      sections > cubin.size() || header.e_shoff > cubin.size() - sections) {
    return corrupt;
  }
  return {};
}

/// The libraries of this process that programs share, by driver and bits.
class SharedLibraries {
 public:
  static SharedLibraries& of_process() {
    static auto* const all = new SharedLibraries;  // programs may outlive static objects
    return *all;
  }

  Result<std::shared_ptr<LoadedLibrary>> share(const DriverApi& api, std::string_view cubin,
                                               DriverStatus& status) {
    const MutexLock lock(mutex_);
    std::erase_if(libraries_, [](const auto& entry) { return entry.second.expired(); });
    std::weak_ptr<LoadedLibrary>& place = libraries_[{&api, digest_of(cubin).hex()}];
    if (std::shared_ptr<LoadedLibrary> loaded = place.lock()) return loaded;
    KW_ASSIGN(std::shared_ptr<LoadedLibrary> loaded, LoadedLibrary::load(api, cubin, status));
    place = loaded;
    return loaded;
  }

 private:
  Mutex mutex_;
  std::map<std::pair<const DriverApi*, std::string>, std::weak_ptr<LoadedLibrary>> libraries_
      KW_GUARDED_BY(mutex_);
};

}  // namespace

Result<std::shared_ptr<LoadedLibrary>> LoadedLibrary::load(const DriverApi& api,
                                                           std::string_view cubin,
                                                           DriverStatus& status) {
  KW_TRY(check_cubin(cubin));
  CUlibrary library = nullptr;
  status = {"cuLibraryLoadData", api.library_load_data(&library, cubin.data(), nullptr, nullptr, 0,
                                                       nullptr, nullptr, 0)};
  if (!status) return driver_error(api, status);
  return std::make_shared<LoadedLibrary>(api, library);
}

Result<std::shared_ptr<LoadedLibrary>> LoadedLibrary::share(const DriverApi& api,
                                                            std::string_view cubin,
                                                            DriverStatus& status) {
  return SharedLibraries::of_process().share(api, cubin, status);
}

Result<const DriverKernel*> LoadedLibrary::kernel(const std::string& name, CUdevice device,
                                                  DriverStatus& status) {
  const MutexLock lock(mutex_);
  auto known = kernels_.find({name, device});
  if (known == kernels_.end()) {
    KW_ASSIGN(DriverKernel asked, ask(name, device, status));
    known = kernels_.emplace(std::pair(name, device), std::move(asked)).first;
  }
  return &known->second;
}

Result<DriverKernel> LoadedLibrary::ask(const std::string& name, CUdevice device,
                                        DriverStatus& status) const {
  DriverKernel entry;
  status = {"cuLibraryGetKernel",
            api_.library_get_kernel(&entry.kernel, library_.get(), name.c_str())};
  if (!status) {
    return Error{ErrorCode::invalid_argument,
                 concat("kernel ", name, ": ", driver_error(api_, status).message)};
  }
  const auto attribute = [&](CUfunction_attribute id) {
    int value = 0;
    if (status) {
      status = {"cuKernelGetAttribute",
                api_.kernel_get_attribute(&value, id, entry.kernel, device)};
    }
    return static_cast<std::uint64_t>(value);
  };
  entry.max_threads = attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  entry.static_smem = attribute(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
  int smem_limit = 0;
  if (status) {
    status = {"cuDeviceGetAttribute",
              api_.device_get_attribute(
                  &smem_limit, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device)};
  }
  entry.smem_limit = static_cast<std::uint64_t>(smem_limit);
  // Else the driver would load the code at the first launch, which may be a server's under load. If
  // it cannot load it now, that launch fails and says why.
  CUfunction function = nullptr;
  if (status && api_.kernel_get_function(&function, entry.kernel) == CUDA_SUCCESS) {
    static_cast<void>(api_.function_load(function));
  }
  while (status) {
    std::size_t offset = 0;
    std::size_t bytes = 0;
    const std::size_t index = entry.parameter_bytes.size();
    status = {"cuKernelGetParamInfo",
              api_.kernel_get_param_info(entry.kernel, index, &offset, &bytes)};
    if (status.result == CUDA_ERROR_INVALID_VALUE) {  // there are no more
      status = {};
      return entry;
    }
    entry.parameter_bytes.push_back(bytes);
  }
  return driver_error(api_, status);
}

DriverStatus LoadedLibrary::raise(CUkernel kernel, CUdevice device, CUfunction_attribute attribute,
                                  int value) {
  const MutexLock lock(mutex_);
  int& most = raised_[{kernel, device, attribute}];
  if (value <= most) return {};
  const DriverStatus status{"cuKernelSetAttribute",
                            api_.kernel_set_attribute(attribute, value, kernel, device)};
  if (status) most = value;
  return status;
}

}  // namespace kernwright
