#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "cache/entries/miss.h"
#include "compile/compile_request.h"
#include <kernwright/result.h>

namespace kernwright {

/// Returns the payload of an artifact: one line of JSON (everything but the bits), then the bits.
/// Text that is not UTF-8 (a compiler's log may hold any bytes) comes back with replacement
/// characters.
std::string encode_artifact(const CompiledKernel& kernel);

/// Undoes `encode_artifact`. Errors: `corrupt` naming the field.
Result<CompiledKernel> decode_artifact(std::string_view payload);

/// Keeps compiled bits by the digest of everything that they were compiled from. An artifact is a
/// pure function of its key: it is valid for ever, and every machine of the architecture can share
/// it. Files are immutable. Thread-safe, and safe against other processes on the same directory.
class ArtifactStore {
 public:
  explicit ArtifactStore(std::filesystem::path root);

  /// Returns the artifact, or why there is none. A defective file is a miss.
  Lookup<CompiledKernel> get(std::string_view digest_hex) const;

  /// Publishes the artifact, unless an intact one is there already. The bits are a function of the
  /// digest, so the first writer wins, and only a defective file is replaced. Errors:
  /// `invalid_argument` if `digest_hex` is not a digest; `io`. A failure costs the caching, never
  /// the caller's work.
  Result<void> put(std::string_view digest_hex, const CompiledKernel& kernel) const;

  /// Returns the digests that are present, sorted.
  std::vector<std::string> list() const;

  /// Returns the path of a digest's artifact. `digest_hex` is 64 lower-case hex digits.
  std::filesystem::path path(std::string_view digest_hex) const;

 private:
  std::filesystem::path root_;
};

}  // namespace kernwright
