#include "compile/toolkit.h"

#include <dlfcn.h>

#include "compile/nvrtc_signals.h"
#include "support/libraries/dynamic_library.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

/// Fills function pointers from one library, and remembers the first name that is missing.
class Binder {
 public:
  explicit Binder(const DynamicLibrary& library) : library_(library) {}

  template <typename Function>
  Binder& bind(Function*& function, const char* name) {
    void* address = library_.symbol(name);
    if (address == nullptr && missing_.empty()) missing_ = name;
    function = reinterpret_cast<Function*>(address);
    return *this;
  }

  Result<void> finish() const {
    if (missing_.empty()) return {};
    return Error{ErrorCode::unavailable, concat(library_.name(), ": has no symbol ", missing_)};
  }

 private:
  const DynamicLibrary& library_;
  std::string missing_;
};

Result<DynamicLibrary> open_library(const std::string& file, std::string_view stem,
                                    const std::vector<std::string>& majors) {
  return file.empty() ? open_toolkit_library(stem, majors) : DynamicLibrary::open({file});
}

/// Returns the path of the library that has `function`. The library may have been opened by a bare
/// soname, so only the loader knows the path.
template <typename Function>
std::string file_of(Function* function, const DynamicLibrary& library) {
  Dl_info info{};
  const bool found = dladdr(reinterpret_cast<void*>(function), &info) != 0;
  return found && info.dli_fname != nullptr ? info.dli_fname : library.name();
}

}  // namespace

Result<Nvrtc> Nvrtc::load(const std::string& file) {
  KW_ASSIGN(const auto library, open_library(file, "libnvrtc.so", {"13", "12"}));
  Nvrtc api;
  KW_TRY(Binder(library)
             .bind(api.version, "nvrtcVersion")
             .bind(api.error_string, "nvrtcGetErrorString")
             .bind(api.create_program, "nvrtcCreateProgram")
             .bind(api.destroy_program, "nvrtcDestroyProgram")
             .bind(api.compile_program, "nvrtcCompileProgram")
             .bind(api.log_size, "nvrtcGetProgramLogSize")
             .bind(api.log, "nvrtcGetProgramLog")
             .bind(api.cubin_size, "nvrtcGetCUBINSize")
             .bind(api.cubin, "nvrtcGetCUBIN")
             .bind(api.lto_ir_size, "nvrtcGetLTOIRSize")
             .bind(api.lto_ir, "nvrtcGetLTOIR")
             .finish());
  if (const nvrtcResult status = api.version(&api.major, &api.minor); status != NVRTC_SUCCESS) {
    return Error{ErrorCode::unavailable,
                 concat(library.name(), ": nvrtcVersion failed: ", api.error_string(status))};
  }
  api.file = file_of(api.version, library);
  keep_signals_from_nvrtc(reinterpret_cast<const void*>(api.version));
  // NVRTC opens its builtins by a bare name, which fails if they are outside of the loader's
  // search, as in a wheel. Once they are loaded, the name finds them. If they are missing, NVRTC's
  // log says so.
  const std::string folder = api.file.substr(0, api.file.rfind('/') + 1);
  (void)DynamicLibrary::open({concat(folder, "libnvrtc-builtins.so.", std::to_string(api.major),
                                     ".", std::to_string(api.minor))});
  return api;
}

Result<NvJitLink> NvJitLink::load(const std::string& file, int major) {
  KW_ASSIGN(const auto library, open_library(file, "libnvJitLink.so", {std::to_string(major)}));
  NvJitLink api;
  KW_TRY(Binder(library)
             .bind(api.create, "nvJitLinkCreate")
             .bind(api.destroy, "nvJitLinkDestroy")
             .bind(api.add_data, "nvJitLinkAddData")
             .bind(api.complete, "nvJitLinkComplete")
             .bind(api.cubin_size, "nvJitLinkGetLinkedCubinSize")
             .bind(api.cubin, "nvJitLinkGetLinkedCubin")
             .bind(api.error_log_size, "nvJitLinkGetErrorLogSize")
             .bind(api.error_log, "nvJitLinkGetErrorLog")
             .bind(api.info_log_size, "nvJitLinkGetInfoLogSize")
             .bind(api.info_log, "nvJitLinkGetInfoLog")
             .finish());
  api.file = file_of(api.create, library);
  return api;
}

}  // namespace kernwright
