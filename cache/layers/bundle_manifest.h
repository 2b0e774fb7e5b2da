#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <kernwright/result.h>

namespace kernwright {

/// The entries of a bundle that are no files of the cache, in this order before those.
inline constexpr std::string_view kManifestName = "manifest.json";
inline constexpr std::string_view kSignatureName = "manifest.sig";

/// What a bundle may ask of a machine that installs it.
inline constexpr std::uint64_t kMostManifestBytes = std::uint64_t{8} << 20;
inline constexpr std::uint64_t kMostFileBytes = std::uint64_t{256} << 20;
inline constexpr std::uint64_t kMostBundleBytes = std::uint64_t{4} << 30;
inline constexpr std::size_t kMostFiles = 20'000;

/// A file of a bundle.
struct BundledFile {
  std::string name;  ///< its path below the root of a cache
  std::uint64_t bytes = 0;
  std::string digest;  ///< BLAKE3, hex

  friend bool operator==(const BundledFile&, const BundledFile&) = default;
};

/// What a bundle holds, and where it comes from.
struct BundleManifest {
  std::string kernwright;  ///< the version that wrote it
  /// Which of two bundles is the newer: the time of its export in UTC seconds, or a counter that
  /// who exports it keeps; 0 in bundles from before there was one.
  std::uint64_t serial = 0;
  std::vector<std::string> skus;     ///< sorted, each once
  std::vector<std::string> devices;  ///< UUIDs of the GPUs that measured, likewise
  std::vector<BundledFile> files;    ///< sorted by name, which are all different
};

/// JSON, indented, in a stable order.
std::string to_json(const BundleManifest& manifest);

/// Errors: `corrupt` naming the field: also names that are no places of a cache's files, an order
/// that is not sorted, and sizes beyond the limits.
Result<BundleManifest> parse_bundle_manifest(std::string_view json);

/// What is signed of a manifest's text.
std::string signed_text(std::string_view manifest);

/// The kind of entry that a file of that name holds, "record", "override" or "artifact"; empty for
/// names that are none of the cache's: so nothing of a bundle can lead anywhere else.
std::string_view entry_kind(std::string_view name);

}  // namespace kernwright
