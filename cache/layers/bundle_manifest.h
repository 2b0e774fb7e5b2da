#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <kernwright/result.h>

namespace kernwright {

/// The entries of a bundle that are not files of the cache. They come first, in this order.
inline constexpr std::string_view kManifestName = "manifest.json";
inline constexpr std::string_view kSignatureName = "manifest.sig";

/// Limits for a bundle, to protect the machine that installs it.
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

/// The contents of a bundle, and its origin.
struct BundleManifest {
  std::string kernwright;  ///< the version that wrote it
  /// Decides which of two bundles is newer. It is the time of the export in UTC seconds, or a
  /// counter that the exporter keeps. It is 0 in bundles from versions without serials.
  std::uint64_t serial = 0;
  std::vector<std::string> skus;     ///< sorted, each once
  std::vector<std::string> devices;  ///< UUIDs of the GPUs that measured, likewise
  std::vector<BundledFile> files;    ///< sorted by name, which are all different
};

/// Returns JSON, indented, in a stable order.
std::string to_json(const BundleManifest& manifest);

/// Parses a manifest. Errors: `corrupt`, which names the field. Names that are not places of a
/// cache's files, an order that is not sorted and sizes beyond the limits are corrupt too.
Result<BundleManifest> parse_bundle_manifest(std::string_view json);

/// Returns the bytes that are signed for a manifest's text.
std::string signed_text(std::string_view manifest);

/// Returns the kind of entry that a file of that name holds: "record", "family", "override" or
/// "artifact". It is empty for names that the cache cannot have made, so nothing in a bundle can
/// lead anywhere else.
std::string_view entry_kind(std::string_view name);

}  // namespace kernwright
