#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <kernwright/result.h>

#include "cache/miss.h"
#include "compile/compile_request.h"

namespace kernwright {

/// Compiled bits by the digest of what they were compiled from. A pure function of its key: valid for
/// ever, shareable by every machine of the architecture. Files are immutable; the first writer wins.
/// Thread-safe, and safe against other processes on the same directory.
class ArtifactStore {
 public:
  explicit ArtifactStore(std::filesystem::path root);

  /// The artifact, or why there is none. A defective file is a miss.
  Lookup<CompiledKernel> get(std::string_view digest_hex) const;

  /// Publishes. A failure costs the caching, never the caller's work.
  Result<void> put(std::string_view digest_hex, const CompiledKernel& kernel) const;

  /// Digests present, sorted.
  std::vector<std::string> list() const;
  std::filesystem::path path(std::string_view digest_hex) const;

 private:
  std::filesystem::path root_;
};

}  // namespace kernwright
