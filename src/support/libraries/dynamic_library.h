#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <kernwright/result.h>

namespace kernwright {

/// A library opened with dlopen and never closed: CUDA's libraries do not survive dlclose.
class DynamicLibrary {
 public:
  /// Opens the first of `names` that loads (a bare name uses the loader's search, a path is taken
  /// as it is). Errors: `unavailable` with what each attempt said.
  static Result<DynamicLibrary> open(const std::vector<std::string>& names);

  /// The symbol's address, or null.
  void* symbol(const char* name) const;

  /// The name or path that loaded.
  const std::string& name() const { return name_; }

 private:
  void* handle_ = nullptr;
  std::string name_;
};

/// Candidate paths for a toolkit library, in order. Below $KERNWRIGHT_CUDA_PATH and nowhere else
/// where that is set: what lies elsewhere may be another compiler, and give other kernels. Else the
/// loader's own search, $CUDA_HOME, and the usual toolkit folder. Python wheels' layout counts
/// below each. `stem` is e.g. "libnvrtc.so"; `majors` the sonames to try, newest first ("13",
/// "12").
std::vector<std::string> toolkit_library_names(std::string_view stem,
                                               const std::vector<std::string>& majors);

/// Opens the first of them. Errors: `unavailable` with what was tried, and with the variable where
/// it is set.
Result<DynamicLibrary> open_toolkit_library(std::string_view stem,
                                            const std::vector<std::string>& majors);

}  // namespace kernwright
