#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "cache/layers/tiered_cache.h"
#include <kernwright/result.h>

namespace kernwright {

/// What goes into a bundle.
struct ExportOptions {
  std::string sku;         ///< empty: all
  std::string secret_key;  ///< hex; empty: it is not signed
  /// See `BundleManifest::serial`; an installation does not go back to a lower one by itself.
  std::uint64_t serial = 0;
  /// The time, UTC in ISO 8601: a run that is dated after it makes no other one superfluous.
  std::string now = {};
};

struct ExportReport {
  std::string digest;  ///< of the manifest, hex: names the bundle
  std::int64_t records = 0;
  std::int64_t overrides = 0;
  std::int64_t artifacts = 0;
};

/// Writes the user's layer as a bundle: the runs that a `compact` would leave, the decisions, and
/// the artifacts of the winners. The same content and serial give the same file, byte by byte.
/// Errors: `not_found` where there is no record, or a winner's artifact is not there; `corrupt`
/// where it would be more than an installation takes, or a folder of the cache cannot be read;
/// `unavailable`, `io`.
Result<ExportReport> export_bundle(const TieredCache& cache, const std::filesystem::path& file,
                                   const ExportOptions& options);

/// Whom to trust.
struct InstallOptions {
  std::vector<std::string> trusted_keys;  ///< public ones, hex
  bool allow_unsigned = false;            ///< also what nobody of these has signed
  bool allow_older = false;               ///< also a lower serial than that of the one in use
  /// How long it waits for another installation to end.
  std::chrono::milliseconds patience = std::chrono::minutes(2);
};

struct InstallReport {
  std::string digest;
  std::string signer;  ///< the key; empty where nobody who is trusted signed it
  std::uint64_t serial = 0;
  std::int64_t files = 0;
  std::int64_t bytes = 0;
};

/// Checks a bundle, unpacks it below `root`, and makes it the one in use by a single rename: a
/// process sees the old one or the new one, whole. One installation at a time; the signature is
/// checked before the manifest is parsed. Refused, with nothing changed: a wrong or missing
/// signature; a lower serial than that of the one in use; names that are none of the cache's own;
/// links, and other things that are no file; owners other than 0; more or larger files than the
/// manifest or the limits say; content that its digest or the cache's own format does not fit.
/// Errors: `invalid_argument` for what is refused as not trusted or older; `corrupt`, naming the
/// entry; `unavailable`, also where another installation does not end; `io`.
Result<InstallReport> install_bundle(const std::filesystem::path& file,
                                     const std::filesystem::path& root,
                                     const InstallOptions& options);

/// The folder of the bundle in use below `root`, as it is now; empty where there is none. Later
/// installations leave it as it is.
std::filesystem::path installed_bundle(const std::filesystem::path& root);

/// What is wrong with a bundle that was unpacked to `folder`, which is called by its digest: files
/// that are missing or others than its manifest says, and whatever is there beside them.
struct BundleDefect {
  std::filesystem::path path;
  std::string what;
};
std::vector<BundleDefect> bundle_defects(const std::filesystem::path& folder);

/// Reads keys, one public key in hex per line; `#` begins a comment. Errors: `invalid_argument`
/// naming file and line, or because others than its owner and root may write the file.
Result<std::vector<std::string>> read_trusted_keys(const std::filesystem::path& file);

}  // namespace kernwright
