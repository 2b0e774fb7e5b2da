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

/// The contents of a bundle, and how it is signed.
struct ExportOptions {
  std::string sku;         ///< empty: all
  std::string secret_key;  ///< hex; empty: it is not signed
  /// See `BundleManifest::serial`; an installation does not go back to a lower one by itself.
  std::uint64_t serial = 0;
  /// The time now, UTC in ISO 8601. A run that is dated after it, by a wrong clock, makes no other
  /// run superfluous.
  std::string now = {};
};

struct ExportReport {
  std::string digest;  ///< of the manifest, hex: names the bundle
  std::int64_t records = 0;
  std::int64_t families = 0;
  std::int64_t overrides = 0;
  std::int64_t artifacts = 0;
  /// Candidates that decisions made the answer although the bundle has no bits for them, as
  /// sentences that begin with the key.
  std::vector<std::string> without_bits;
};

/// Writes the user's layer as a bundle: the runs and families that a `compact` would leave, the
/// decisions, and the artifacts of the winners, of the families' kernels, and of the candidates
/// that decisions put in a winner's place, as far as the layer has them. The same content and
/// serial produce the same file, byte by byte. Errors: `not_found` if there is neither record nor
/// family, or the artifact of a winner or of a family's kernel is not there; `corrupt` if the
/// bundle would be more than an installation takes, or a folder of the cache cannot be read;
/// `unavailable`, `io`.
Result<ExportReport> export_bundle(const TieredCache& cache, const std::filesystem::path& file,
                                   const ExportOptions& options);

/// The conditions under which an installation accepts a bundle.
struct InstallOptions {
  std::vector<std::string> trusted_keys;  ///< public ones, hex
  bool allow_unsigned = false;            ///< also accepts bundles that none of these keys signed
  bool allow_older = false;               ///< also accepts a lower serial than the one in use
  /// The time for which it waits for another installation to end.
  std::chrono::milliseconds patience = std::chrono::minutes(2);
};

struct InstallReport {
  std::string digest;
  std::string signer;  ///< the key; empty if no trusted key signed it
  std::uint64_t serial = 0;
  std::int64_t files = 0;
  std::int64_t bytes = 0;
};

/// Checks a bundle, unpacks it below `root`, and makes it the one in use by a single rename. So a
/// process sees the old bundle or the new one, whole. One installation runs at a time. The
/// signature is checked before the manifest is parsed.
///
/// These are refused, and nothing is changed then: a wrong or missing signature; a serial below the
/// serial of the bundle in use; names that the cache cannot have made; links, and other things that
/// are not files; owners other than 0; more or larger files than the manifest or the limits say;
/// content that does not fit its digest or the cache's own format.
///
/// Errors: `refused` for a bundle that is not trusted or is older, with the option that allows it;
/// `corrupt`, which names the entry; `unavailable`, also if another installation does not end;
/// `io`.
Result<InstallReport> install_bundle(const std::filesystem::path& file,
                                     const std::filesystem::path& root,
                                     const InstallOptions& options);

/// Returns the folder of the bundle that is in use below `root` now; empty if there is none. Later
/// installations leave that folder as it is.
std::filesystem::path installed_bundle(const std::filesystem::path& root);

/// Returns the digest of the bundle that a layer is, or that its link leads to; empty if it is not
/// a bundle.
std::string bundle_of(const std::filesystem::path& layer);

/// A defect of a bundle that was unpacked to `folder`, whose name is the bundle's digest: a file
/// that is missing or differs from the manifest, or a file that the manifest does not name.
struct BundleDefect {
  std::filesystem::path path;
  std::string what;
};
std::vector<BundleDefect> bundle_defects(const std::filesystem::path& folder);

/// Checks a bundle that a package brought to `folder`, unpacked. It needs no signature, because an
/// installed package is trusted as its code is. But nobody except this user and root may write to
/// its folders and files, and every file must be as the manifest says. Reads all of it, and makes
/// later reads of this process compare with the checked contents. Errors: `refused`, which names
/// the files that others may write; `corrupt`, which names the file; `not_found`; `io`.
Result<void> check_packaged_bundle(const std::filesystem::path& folder);

/// Reads keys, one public key in hex per line; `#` begins a comment. Errors: `invalid_argument`,
/// which names file and line, also if anybody besides its owner and root may write the file.
Result<std::vector<std::string>> read_trusted_keys(const std::filesystem::path& file);

}  // namespace kernwright
