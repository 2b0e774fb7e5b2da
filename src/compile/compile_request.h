#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/result/trial.h"
#include "support/hash.h"
#include <kernwright/result.h>

namespace kernwright {

/// What a compile leaves: a cubin ready to load, or LTO-IR for `link`.
enum class OutputKind { cubin, lto_ir };

/// LTO-IR that a compile is linked with. `name` is for messages.
struct LinkedInput {
  std::string name;
  std::string lto_ir;
};

/// Text, options and target: everything a compile depends on, and nothing else.
struct CompileRequest {
  std::string name;  ///< of the source in messages, "matmul/tiled/kernel.cu"
  std::string source;
  std::vector<std::pair<std::string, std::string>> headers;  ///< name as included, text
  std::vector<std::string> options;  ///< beyond those that `Compiler` always gives
  std::string target;                ///< "sm_90a"
  OutputKind output = OutputKind::cubin;
  std::vector<LinkedInput> linked;  ///< into a cubin, by nvJitLink

  /// Digest of source, headers, options, target, output kind, what is linked and `compiler` (its
  /// identity, see `Compiler::identity`): the artifact's key.
  Digest digest(std::string_view compiler) const;
};

/// One kernel entry of a cubin.
struct KernelEntry {
  std::string name;
  Resources resources;
};

/// Compiled bits with their resource report.
struct CompiledKernel {
  std::string bits;  ///< cubin or LTO-IR
  OutputKind output = OutputKind::cubin;
  std::string target;
  std::vector<KernelEntry> entries;  ///< empty for LTO-IR
  /// That cost speed: serialised wgmma, ignored setmaxnreg, functions that were not inlined.
  std::vector<std::string> warnings;
  std::string log;
  double seconds = 0;  ///< wall time of the compile

  /// Resources of the worst entry (most spills, then most registers).
  Resources resources() const;
};

}  // namespace kernwright
