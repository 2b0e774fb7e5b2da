#include "support/libraries/dynamic_library.h"

#include <cstdlib>
#include <dlfcn.h>
#include <unistd.h>

#include "support/processes/process_exit.h"
#include "support/text.h"

namespace kernwright {
namespace {

/// The folders below the root of a toolkit or a Python wheel that may hold its libraries. CUDA 13
/// wheels share one folder; the wheels of CUDA 12 have one for each component.
constexpr std::string_view kLibraryFolders[] = {"lib64",
                                                "lib",
                                                "targets/x86_64-linux/lib",
                                                "nvidia/cu13/lib",
                                                "nvidia/cuda_nvrtc/lib",
                                                "nvidia/nvjitlink/lib"};

constexpr const char* kToolkitVariable = "KERNWRIGHT_CUDA_PATH";

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

Result<DynamicLibrary> DynamicLibrary::open(const std::vector<std::string>& names) {
  [[maybe_unused]] static const bool heeded = heed_exit();
  // A library is built up by the thread that loads it, and taken down by the one that exits.
  const BeforeExit loads(BeforeExit::Late::loads);
  if (!loads) return Error{ErrorCode::unavailable, "nothing is loaded while the process exits"};
  std::string attempts;
  int absent = 0;
  for (const std::string& name : names) {
    // The loader's message is kept only for files that exist.
    if (name.find('/') != std::string::npos && access(name.c_str(), F_OK) != 0) {
      ++absent;
      continue;
    }
    if (void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {
      heed_exit();
      DynamicLibrary library;
      library.handle_ = handle;
      library.name_ = name;
      return library;
    }
    const char* reason = dlerror();
    attempts += concat(attempts.empty() ? "" : "; ", reason ? reason : name);
  }
  if (absent > 0) {
    attempts += concat(attempts.empty() ? "" : "; ", "nothing at ", absent, " paths, the last ",
                       names.back());
  }
  return Error{ErrorCode::unavailable, concat("no library could be loaded: ", attempts)};
}

void* DynamicLibrary::symbol(const char* name) const {
  return handle_ ? dlsym(handle_, name) : nullptr;
}

std::vector<std::string> toolkit_library_names(std::string_view stem,
                                               const std::vector<std::string>& majors) {
  std::vector<std::string> names;
  const auto add_file_names = [&](const std::string& folder) {
    for (const std::string& major : majors) names.push_back(concat(folder, stem, ".", major));
  };
  const auto add_root = [&](std::string_view root) {
    if (root.empty()) return;
    for (const std::string_view folder : kLibraryFolders) {
      add_file_names(concat(root, "/", folder, "/"));
    }
  };
  if (const std::string_view chosen = variable(kToolkitVariable); !chosen.empty()) {
    add_root(chosen);
    return names;
  }
  add_file_names("");
  add_root(variable("CUDA_HOME"));
  add_root("/usr/local/cuda");
  return names;
}

Result<DynamicLibrary> open_toolkit_library(std::string_view stem,
                                            const std::vector<std::string>& majors) {
  Result<DynamicLibrary> library = DynamicLibrary::open(toolkit_library_names(stem, majors));
  const std::string_view chosen = variable(kToolkitVariable);
  if (library || chosen.empty()) return library;
  return Error{ErrorCode::unavailable, concat(kToolkitVariable, " is ", chosen, ", and ", stem,
                                              " is not there: ", library.error().message)};
}

}  // namespace kernwright
