#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <kernwright/result.h>

namespace kernwright {

/// A library opened by dlopen. It is never closed, because CUDA's libraries do not survive dlclose.
class DynamicLibrary {
 public:
  /// Opens the first of `names` that loads. The loader searches for a bare name, and takes a path
  /// as it is. Errors: `unavailable` with the message of each attempt, or while the process exits.
  static Result<DynamicLibrary> open(const std::vector<std::string>& names);

  /// Returns the symbol's address, or null.
  void* symbol(const char* name) const;

  /// Returns the name or path that loaded.
  const std::string& name() const { return name_; }

 private:
  void* handle_ = nullptr;
  std::string name_;
};

/// Returns the names to try for a toolkit library, in order. If $KERNWRIGHT_CUDA_PATH is set, all
/// are below it, because another compiler would make other kernels. Otherwise they are the bare
/// name, for the loader's search, and paths below $CUDA_HOME and the usual toolkit folder. Below
/// each folder the layouts of a toolkit and of Python wheels are tried. `stem` is for example
/// "libnvrtc.so"; `majors` are the sonames to try, newest first ("13", "12").
std::vector<std::string> toolkit_library_names(std::string_view stem,
                                               const std::vector<std::string>& majors);

/// Opens the first of these that loads. Errors: `unavailable` with what was tried, and with the
/// variable if it is set.
Result<DynamicLibrary> open_toolkit_library(std::string_view stem,
                                            const std::vector<std::string>& majors);

}  // namespace kernwright
