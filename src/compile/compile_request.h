#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/result/trial.h"
#include "support/hash.h"
#include "support/names.h"
#include <kernwright/result.h>

namespace kernwright {

/// The result of a compile: a cubin that is ready to load, or LTO-IR for `link`.
enum class OutputKind { cubin, lto_ir };

constexpr auto names_of(OutputKind) { return std::to_array<std::string_view>({"cubin", "lto_ir"}); }

/// LTO-IR that the compiled code is linked with. `name` is for messages.
struct LinkedInput {
  std::string name;
  std::string lto_ir;
};

/// Everything that a compile depends on, and nothing else: texts, options and target.
struct CompileRequest {
  std::string name;  ///< of the source in messages, "matmul/tiled/kernel.cu"
  std::string source;
  std::vector<std::pair<std::string, std::string>> headers;  ///< name as included, text
  std::vector<std::string> options;  ///< beyond those that `Compiler` always adds
  std::string target;                ///< "sm_90a"
  OutputKind output = OutputKind::cubin;
  std::vector<LinkedInput> linked;  ///< into a cubin, by nvJitLink
  /// Headers that are a user's, and the files that errors name in their place. Not part of the
  /// digest: they change no code.
  std::vector<std::pair<std::string, std::string>> user_files = {};

  /// Returns the artifact's key: the digest of source, headers, options, target, output kind,
  /// linked inputs and `compiler`, which is `Compiler::identity`.
  Digest digest(std::string_view compiler) const;
};

/// One kernel entry of a cubin.
struct KernelEntry {
  std::string name;
  Resources resources;
};

void describe(auto& visitor, MaybeConst<KernelEntry> auto& entry) {
  visitor.field("name", entry.name);
  visitor.field("resources", entry.resources);
}

/// Compiled code with the resources that it needs.
struct CompiledKernel {
  std::string bits;  ///< cubin or LTO-IR
  OutputKind output = OutputKind::cubin;
  std::string target;
  std::vector<KernelEntry> entries;  ///< empty for LTO-IR
  /// Warnings of lost speed: serialised wgmma, ignored setmaxnreg, functions that were not inlined.
  std::vector<std::string> warnings;
  std::string log;
  double seconds = 0;  ///< wall time of the compile

  /// Returns the resources of the worst entry: the one with most spills, then most registers.
  Resources resources() const;
};

}  // namespace kernwright
