#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "compile/compile_request.h"
#include <kernwright/result.h>

namespace kernwright {

/// Full paths of the toolkit's libraries. An empty one is looked for where it is needed.
struct ToolkitFiles {
  std::string nvrtc;
  std::string nvjitlink;
  friend bool operator==(const ToolkitFiles&, const ToolkitFiles&) = default;
};

/// Returns how long a compile may take, by the clock: 60 s, or $KERNWRIGHT_COMPILE_SECONDS, for
/// machines that are so busy that a compile takes longer.
std::chrono::milliseconds compile_deadline();

/// Returns what an error that meets that deadline ends with: what allows more. Names the variable's
/// value where it is no number of seconds.
std::string more_compile_time();

/// Compiles CUDA source. The real implementation loads NVRTC and nvJitLink by dlopen on first use;
/// tests have fakes. Thread-safe.
class Compiler {
 public:
  virtual ~Compiler() = default;

  /// Name, version and digest of the compiler's library: "nvrtc 13.0 <hex>". Loads the toolkit.
  /// Errors: `unavailable` with what was tried.
  virtual Result<std::string> identity() = 0;

  /// The digest of the toolkit's headers that the request's texts may include. Empty where they
  /// include none; the toolkit is not looked for then.
  virtual std::string headers_identity(const CompileRequest&) { return {}; }

  /// Name and digest of the linker's library: "nvjitlink <hex>". Loads it. Empty where there is
  /// none, and then nothing can be linked.
  virtual std::string linker_identity() { return {}; }

  /// The libraries that compile `request` here, so that another process can take the same. Loads
  /// them. Empty where there are none.
  virtual ToolkitFiles files(const CompileRequest&) { return {}; }

  /// Compiles a request. Sources see the headers of the request and those of the toolkit; no other
  /// file is read, and nothing depends on the working directory. Errors: `compile` with the log
  /// where the source is refused, or with the line where it asks for another file; `unavailable`
  /// without a toolkit.
  virtual Result<CompiledKernel> compile(const CompileRequest& request) = 0;

  /// Links LTO-IR inputs to one cubin for `target`. Errors: those of `compile`.
  virtual Result<CompiledKernel> link(const std::vector<std::string>& lto_ir,
                                      const std::string& target) = 0;

  /// Makes compiles end soon with `unavailable`, where they can be ended.
  virtual void stop() {}
};

/// The key of the artifact that `compiler`, which has the identity `identity`, makes from
/// `request`. It depends on the toolkit's headers if the request includes some, and on the linker
/// if it links.
Digest artifact_digest(const CompileRequest& request, std::string_view identity,
                       Compiler& compiler);

/// The compiler that loads NVRTC and nvJitLink by dlopen: those of `files`, or those that it finds.
std::unique_ptr<Compiler> make_toolkit_compiler(ToolkitFiles files = {});

}  // namespace kernwright
