#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "compile/compile_request.h"
#include <kernwright/result.h>

namespace kernwright {

/// Full paths of the toolkit's libraries. An empty one is looked for when it is needed.
struct ToolkitFiles {
  std::string nvrtc;
  std::string nvjitlink;
  friend bool operator==(const ToolkitFiles&, const ToolkitFiles&) = default;
};

/// Returns how long a compile may take, by the clock: 60 s, or $KERNWRIGHT_COMPILE_SECONDS, for
/// machines that are so busy that a compile takes longer.
std::chrono::milliseconds compile_deadline();

/// Returns the end of the message of an error at that deadline, which says how to allow more time.
/// Names the variable's value if it is not a number of seconds.
std::string more_compile_time();

/// Compiles CUDA source. The real implementation loads NVRTC and nvJitLink by dlopen on first use;
/// tests have fakes. Thread-safe.
class Compiler {
 public:
  virtual ~Compiler() = default;

  /// Returns name, version and digest of the compiler's library: "nvrtc 13.0 <hex>". Loads the
  /// toolkit. Errors: `unavailable` with what was tried.
  virtual Result<std::string> identity() = 0;

  /// Returns the digest of the toolkit's headers that the request's texts may include. Empty if
  /// they include none; the toolkit is not looked for then.
  virtual std::string headers_identity(const CompileRequest&) { return {}; }

  /// Returns name and digest of the linker's library: "nvjitlink <hex>". Loads it. Empty if there
  /// is none, and then nothing can be linked.
  virtual std::string linker_identity() { return {}; }

  /// Returns the libraries that compile `request` here, so that another process can take the same.
  /// Loads them. Empty if there are none.
  virtual ToolkitFiles files(const CompileRequest&) { return {}; }

  /// Compiles a request. Sources see the headers of the request and of the toolkit; no other file
  /// is read, and nothing depends on the working directory. Errors: `compile` with the log if the
  /// source is refused, or with the line if it asks for another file; `unavailable` without a
  /// toolkit.
  virtual Result<CompiledKernel> compile(const CompileRequest& request) = 0;

  /// Links LTO-IR inputs to one cubin for `target`. Errors: see `compile`.
  virtual Result<CompiledKernel> link(const std::vector<std::string>& lto_ir,
                                      const std::string& target) = 0;

  /// Makes compiles end soon with `unavailable`, if they can be ended.
  virtual void stop() {}
};

/// Returns the key of the artifact that `compiler`, which has the identity `identity`, makes from
/// `request`. It depends on the toolkit's headers if the request includes some, and on the linker
/// if it links.
Digest artifact_digest(const CompileRequest& request, std::string_view identity,
                       Compiler& compiler);

/// Makes the compiler that loads NVRTC and nvJitLink by dlopen: the libraries in `files`, or those
/// that it finds. If the process may exit during a compile, the first one takes 40 ms longer.
std::unique_ptr<Compiler> make_toolkit_compiler(ToolkitFiles files = {}, bool may_exit = true);

}  // namespace kernwright
