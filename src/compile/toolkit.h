#pragma once

#include <nvJitLink.h>
#include <nvrtc.h>
#include <string>

#include <kernwright/result.h>

namespace kernwright {

/// NVRTC's functions, loaded by dlopen. The build needs only the header.
struct Nvrtc {
  decltype(&nvrtcVersion) version = nullptr;
  decltype(&nvrtcGetErrorString) error_string = nullptr;
  decltype(&nvrtcCreateProgram) create_program = nullptr;
  decltype(&nvrtcDestroyProgram) destroy_program = nullptr;
  decltype(&nvrtcCompileProgram) compile_program = nullptr;
  decltype(&nvrtcGetProgramLogSize) log_size = nullptr;
  decltype(&nvrtcGetProgramLog) log = nullptr;
  decltype(&nvrtcGetCUBINSize) cubin_size = nullptr;
  decltype(&nvrtcGetCUBIN) cubin = nullptr;
  decltype(&nvrtcGetLTOIRSize) lto_ir_size = nullptr;
  decltype(&nvrtcGetLTOIR) lto_ir = nullptr;

  int major = 0;
  int minor = 0;
  std::string file;  ///< full path of the library

  /// Loads `file`, or the newest NVRTC that is found if `file` is empty. Errors: `unavailable` with
  /// what was tried.
  static Result<Nvrtc> load(const std::string& file);
};

/// nvJitLink's functions, loaded by dlopen by their names without the version suffix.
struct NvJitLink {
  decltype(&nvJitLinkCreate) create = nullptr;
  decltype(&nvJitLinkDestroy) destroy = nullptr;
  decltype(&nvJitLinkAddData) add_data = nullptr;
  decltype(&nvJitLinkComplete) complete = nullptr;
  decltype(&nvJitLinkGetLinkedCubinSize) cubin_size = nullptr;
  decltype(&nvJitLinkGetLinkedCubin) cubin = nullptr;
  decltype(&nvJitLinkGetErrorLogSize) error_log_size = nullptr;
  decltype(&nvJitLinkGetErrorLog) error_log = nullptr;
  decltype(&nvJitLinkGetInfoLogSize) info_log_size = nullptr;
  decltype(&nvJitLinkGetInfoLog) info_log = nullptr;

  std::string file;  ///< full path of the library

  /// Loads `file`, or if that is empty the newest nvJitLink of CUDA version `major`, because LTO-IR
  /// of another major version cannot be read. Errors: `unavailable` with what was tried.
  static Result<NvJitLink> load(const std::string& file, int major);
};

}  // namespace kernwright
