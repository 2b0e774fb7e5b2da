#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "cache/bundle.h"
#include "cache/bundle_manifest.h"
#include "cache/entry_file.h"
#include "support/files.h"
#include "support/hash.h"
#include "support/signing.h"
#include "support/tar.h"
#include "support/text.h"

namespace kernwright {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kUnpacking = ".unpacking-";
constexpr std::uint64_t kMostSignatureBytes = 256;

Error corrupt(std::string message) { return {ErrorCode::corrupt, std::move(message)}; }

Error io(std::string_view what, const fs::path& path, const std::error_code& error) {
  return {ErrorCode::io, concat("cannot ", what, " ", path.native(), ": ", error.message())};
}

/// A folder that is removed with all it holds, unless it is released.
class Unpacked {
 public:
  static Result<Unpacked> make(const fs::path& bundles) {
    std::error_code error;
    fs::create_directories(bundles, error);
    if (error) return io("create", bundles, error);
    std::string name = (bundles / concat(kUnpacking, "XXXXXX")).native();
    if (::mkdtemp(name.data()) == nullptr) {
      return io("create", name, std::error_code(errno, std::generic_category()));
    }
    // mkdtemp's own mode is for its maker alone; a bundle is for all who may read the cache.
    fs::permissions(name, fs::perms(0755), error);
    return Unpacked(name);
  }
  Unpacked(Unpacked&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  Unpacked& operator=(Unpacked&&) = delete;
  ~Unpacked() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }

  const fs::path& path() const { return path_; }
  void release() { path_.clear(); }

 private:
  explicit Unpacked(fs::path path) : path_(std::move(path)) {}
  fs::path path_;
};

/// Removes what installations left that were killed an hour ago or earlier.
void remove_leftovers(const fs::path& bundles) {
  for (const std::string& name : list_directory(bundles)) {
    if (!name.starts_with(kUnpacking)) continue;
    std::error_code error;
    const auto changed = fs::last_write_time(bundles / name, error);
    const bool old = !error && fs::file_time_type::clock::now() - changed > std::chrono::hours(1);
    if (old) fs::remove_all(bundles / name, error);
  }
}

/// The next entry, which must be a plain file of that name or, where `name` is empty, of any.
Result<TarEntry> next_file(TarReader& tar, std::string_view name) {
  Result<std::optional<TarEntry>> entry = tar.next();
  if (!entry) return entry.error();
  if (!*entry) return corrupt(concat("the bundle ends before ", name));
  TarEntry found = *std::move(*entry);
  if (!name.empty() && found.name != name) {
    return corrupt(concat("entry \"", found.name, "\" stands where \"", name, "\" should"));
  }
  if (!found.regular) return corrupt(concat("entry \"", found.name, "\" is no regular file"));
  if (found.owner != 0) {
    return corrupt(concat("entry \"", found.name, "\" belongs to user or group ", found.owner));
  }
  return found;
}

/// Who of the trusted signed it; empty for nobody, where that is allowed.
Result<std::string> find_signer(std::string_view manifest, std::string_view signature,
                                const InstallOptions& options) {
  if (!signature.empty()) {
    for (const std::string& key : options.trusted_keys) {
      const Result<bool> good = is_signed(signed_text(manifest), signature, key);
      if (!good) return good.error();
      if (*good) return key;
    }
  }
  if (options.allow_unsigned) return std::string();
  return Error{ErrorCode::invalid_argument,
               signature.empty()
                   ? std::string("the bundle is not signed, and unsigned ones are not allowed")
                   : concat("the bundle is signed by none of ", options.trusted_keys.size(),
                            " trusted keys")};
}

Result<void> check_content(const BundledFile& file, std::string_view bytes) {
  if (bytes.size() != file.bytes) {
    return corrupt(concat(file.name, ": ", bytes.size(), " bytes, by the manifest ", file.bytes));
  }
  if (digest_of(bytes).hex() != file.digest) {
    return corrupt(concat(file.name, ": the digest is not that of the manifest"));
  }
  const Lookup<EntryFile> entry = decode_entry(bytes, entry_kind(file.name));
  if (!entry) return corrupt(concat(file.name, ": ", entry.detail));
  return {};
}

/// Whether the folder has every file of the manifest, whole.
bool is_intact(const fs::path& folder, const BundleManifest& manifest) {
  return std::all_of(manifest.files.begin(), manifest.files.end(), [&](const BundledFile& file) {
    const Result<std::string> bytes = read_file(folder / file.name);
    return bytes && digest_of(*bytes).hex() == file.digest;
  });
}

/// Makes `bundles/current` name `digest`, by one rename.
Result<void> flip(const fs::path& bundles, const std::string& digest) {
  const fs::path link = bundles / concat(kUnpacking, "link-", ::getpid());
  std::error_code error;
  fs::remove(link, error);
  fs::create_directory_symlink(digest, link, error);
  if (error) return io("create", link, error);
  fs::rename(link, bundles / "current", error);
  if (error) return io("replace", bundles / "current", error);
  return {};
}

/// Moves what was unpacked to its place; what lies there already and is whole stays.
Result<void> put_in_place(Unpacked& unpacked, const fs::path& place,
                          const BundleManifest& manifest) {
  std::error_code error;
  if (fs::exists(place, error)) {
    if (is_intact(place, manifest)) return {};
    Result<Unpacked> aside = Unpacked::make(place.parent_path());
    if (!aside) return aside.error();
    fs::rename(place, aside->path() / "broken", error);
    if (error) return io("replace", place, error);
  }
  fs::rename(unpacked.path(), place, error);
  if (!error) {
    unpacked.release();
    return {};
  }
  // Another process may have installed the same.
  if (is_intact(place, manifest)) return {};
  return io("create", place, error);
}

}  // namespace

Result<InstallReport> install_bundle(const fs::path& file, const fs::path& root,
                                     const InstallOptions& options) {
  Result<TarReader> tar = TarReader::open(file);
  if (!tar) return tar.error();
  if (Result<TarEntry> entry = next_file(*tar, kManifestName); !entry) return entry.error();
  const Result<std::string> text = tar->read(kMostManifestBytes);
  if (!text) return text.error();
  const Result<BundleManifest> manifest = parse_bundle_manifest(*text);
  if (!manifest) return manifest.error();

  Result<TarEntry> entry = next_file(*tar, {});
  if (!entry) return entry.error();
  std::string signature;
  if (entry->name == kSignatureName) {
    Result<std::string> read = tar->read(kMostSignatureBytes);
    if (!read) return read.error();
    signature = *std::move(read);
    entry = next_file(*tar, {});
    if (!entry) return entry.error();
  }
  const Result<std::string> signer = find_signer(*text, signature, options);
  if (!signer) return signer.error();

  InstallReport report{.digest = digest_of(*text).hex(), .signer = *signer};
  const fs::path bundles = root / "bundles";
  remove_leftovers(bundles);
  Result<Unpacked> unpacked = Unpacked::make(bundles);
  if (!unpacked) return unpacked.error();
  for (const BundledFile& bundled : manifest->files) {
    if (report.files > 0) entry = next_file(*tar, bundled.name);
    if (!entry) return entry.error();
    if (entry->name != bundled.name) {
      return corrupt(
          concat("entry \"", entry->name, "\" stands where \"", bundled.name, "\" should"));
    }
    const Result<std::string> bytes = tar->read(bundled.bytes);
    if (!bytes) return bytes.error();
    if (Result<void> fits = check_content(bundled, *bytes); !fits) return fits.error();
    if (Result<void> written = publish_file(unpacked->path() / bundled.name, *bytes); !written) {
      return written.error();
    }
    ++report.files;
    report.bytes += static_cast<std::int64_t>(bytes->size());
  }
  const Result<std::optional<TarEntry>> more = tar->next();
  if (!more) return more.error();
  if (*more) return corrupt(concat("entry \"", (*more)->name, "\" is not in the manifest"));

  if (Result<void> placed = put_in_place(*unpacked, bundles / report.digest, *manifest); !placed) {
    return placed.error();
  }
  if (Result<void> flipped = flip(bundles, report.digest); !flipped) return flipped.error();
  return report;
}

fs::path installed_bundle(const fs::path& root) {
  std::error_code error;
  const fs::path bundles = root / "bundles";
  const fs::path name = fs::read_symlink(bundles / "current", error);
  return error ? fs::path() : bundles / name;
}

Result<std::vector<std::string>> read_trusted_keys(const fs::path& file) {
  struct stat status{};
  if (::stat(file.c_str(), &status) != 0) {
    return Error{ErrorCode::invalid_argument, concat("no file of trusted keys ", file.native(),
                                                     ": ", std::generic_category().message(errno))};
  }
  const bool own = status.st_uid == ::geteuid() || status.st_uid == 0;
  if (!own || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return Error{ErrorCode::invalid_argument,
                 concat(file.native(), ": others than you and root may write to it")};
  }
  const Result<std::string> text = read_file(file);
  if (!text) return text.error();
  std::vector<std::string> keys;
  int line = 0;
  for (std::string_view key : split(*text, '\n')) {
    ++line;
    key = trim(key.substr(0, key.find('#')));
    if (key.empty()) continue;
    const bool hex =
        key.size() == 64 && key.find_first_not_of("0123456789abcdef") == std::string_view::npos;
    if (!hex) {
      return Error{ErrorCode::invalid_argument,
                   concat(file.native(), ":", line, ": \"", key, "\" is no key of 64 hex digits")};
    }
    keys.emplace_back(key);
  }
  return keys;
}

}  // namespace kernwright
