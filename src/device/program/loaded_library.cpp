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
