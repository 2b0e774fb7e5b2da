#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "compile/compile_request.h"
#include <kernwright/result.h>

namespace kernwright {

/// Compiles CUDA source. The one real implementation loads NVRTC and nvJitLink with dlopen on first
/// use; tests put a fake behind the pool. Thread-safe.
class Compiler {
 public:
  virtual ~Compiler() = default;

  /// Name, version and library digest: "nvrtc 13.0 <hex>". Loads the toolkit.
  /// Errors: `unavailable` naming what was tried.
  virtual Result<std::string> identity() = 0;

  /// Digest of the toolkit's headers that the request's texts may include; empty where they include
  /// none. Looks for the toolkit only where they do.
  virtual std::string headers_identity(const CompileRequest&) { return {}; }

  /// Name and library digest of what links: "nvjitlink <hex>". Loads it; empty where there is none,
  /// and then nothing can be linked.
  virtual std::string linker_identity() { return {}; }

  /// No file but the toolkit is read: sources see the headers of the request and the toolkit's, and
  /// nothing depends on the working directory. Errors: `compile` with the log where the source is
  /// refused, or with the line where it asks for another file; `unavailable` without a toolkit.
  virtual Result<CompiledKernel> compile(const CompileRequest& request) = 0;

  /// Links LTO-IR inputs into one cubin for `target`. Errors as `compile`.
  virtual Result<CompiledKernel> link(const std::vector<std::string>& lto_ir,
                                      const std::string& target) = 0;
};

/// The key of the artifact that `compiler`, whose identity is `identity`, makes of `request`: the
/// toolkit's headers count where it includes some, the linker where something is linked.
Digest artifact_digest(const CompileRequest& request, std::string_view identity,
                       Compiler& compiler);

/// NVRTC and nvJitLink by dlopen.
std::unique_ptr<Compiler> make_toolkit_compiler();

}  // namespace kernwright
