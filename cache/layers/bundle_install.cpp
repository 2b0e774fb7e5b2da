#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <set>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "cache/entries/checked_files.h"
#include "cache/entries/entry_file.h"
#include "cache/entries/key_lock.h"
#include "cache/layers/bundle.h"
#include "cache/layers/bundle_manifest.h"
#include "support/files.h"
#include "support/hash.h"
#include "support/libraries/signing.h"
#include "support/libraries/tar.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kUnpacking = ".unpacking-";
constexpr std::uint64_t kMostSignatureBytes = 256;

Error corrupt_bundle(std::string message) { return {ErrorCode::corrupt, std::move(message)}; }

Error io(std::string_view what, const fs::path& path, const std::error_code& error) {
  return {ErrorCode::io, concat("cannot ", what, " ", path.native(), ": ", error.message())};
}

/// Owns a folder, which it removes with its contents unless it is released.
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
    // mkdtemp grants access to the owner alone, but all who may read the cache may read a bundle.
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

/// Removes the folders that killed installations left. While this process has the lock, no other
/// one unpacks.
void remove_leftovers(const fs::path& bundles) {
  for (const std::string& name : list_directory(bundles)) {
    std::error_code ignored;
    if (name.starts_with(kUnpacking)) fs::remove_all(bundles / name, ignored);
  }
}

/// Writes a file of the bundle below `folder`. It does not make `folder` itself: if that was
/// removed meanwhile, the files written before are missing, and the installation must fail.
Result<void> write_below(const fs::path& folder, const fs::path& name, std::string_view bytes) {
  fs::path above = folder;
  for (const fs::path& part : name.parent_path()) {
    above /= part;
    std::error_code error;
    fs::create_directory(above, error);
    if (error) return io("create", above, error);
  }
  return create_file(folder / name, bytes, 0644);
}

/// Reads the next entry, which must be a plain file with the name `name`, or any name if that is
/// empty.
Result<TarEntry> next_file(TarReader& tar, std::string_view name) {
  KW_ASSIGN(std::optional<TarEntry> entry, tar.next());
  if (!entry)
    return corrupt_bundle(concat("the bundle ends before ", name.empty() ? "its files" : name));
  TarEntry found = *std::move(entry);
  if (!name.empty() && found.name != name) {
    return corrupt_bundle(concat("entry \"", found.name, "\" stands where \"", name, "\" should"));
  }
  if (!found.regular)
    return corrupt_bundle(concat("entry \"", found.name, "\" is no regular file"));
  if (found.owner != 0) {
    return corrupt_bundle(
        concat("entry \"", found.name, "\" belongs to user or group ", found.owner));
  }
  return found;
}

/// Returns the trusted key that signed the manifest. Errors: `refused` if there is none.
Result<std::string> find_signer(std::string_view manifest, std::string_view signature,
                                const std::vector<std::string>& trusted_keys) {
  if (signature.empty()) return Error{ErrorCode::refused, "the bundle is not signed"};
  if (trusted_keys.empty()) return Error{ErrorCode::refused, "no trusted key is given"};
  for (const std::string& key : trusted_keys) {
    KW_ASSIGN(const bool good, is_signed(signed_text(manifest), signature, key));
    if (good) return key;
  }
  return Error{ErrorCode::refused, concat("the bundle is signed by none of ",
                                          counted(trusted_keys.size(), "trusted key"))};
}

/// Does the same as `find_signer`, but returns an empty text if there is no signer and that is
/// allowed.
Result<std::string> accepted_signer(std::string_view manifest, std::string_view signature,
                                    const InstallOptions& options) {
  Result<std::string> signer = find_signer(manifest, signature, options.trusted_keys);
  if (signer || signer.error().code != ErrorCode::refused) return signer;
  if (options.allow_unsigned) return std::string();
  return Error{ErrorCode::refused,
               concat(signer.error().message,
                      signature.empty() ? "" : "; --trusted-keys names a file of keys",
                      "; --allow-unsigned installs it without that check")};
}

Result<void> check_content(const BundledFile& file, std::string_view bytes) {
  if (bytes.size() != file.bytes) {
    return corrupt_bundle(
        concat(file.name, ": ", bytes.size(), " bytes, by the manifest ", file.bytes));
  }
  if (digest_of(bytes).hex() != file.digest) {
    return corrupt_bundle(concat(file.name, ": the digest is not that of the manifest"));
  }
  const Lookup<EntryFile> entry = decode_entry(bytes, entry_kind(file.name));
  if (!entry) return corrupt_bundle(concat(file.name, ": ", entry.detail));
  return {};
}

bool is_digest(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

/// Reads the manifest of the bundle in `folder`. Errors: `not_found` if it has none, because an
/// earlier version installed it; `corrupt`; `io`.
Result<BundleManifest> manifest_of(const fs::path& folder) {
  KW_ASSIGN(const std::string text,
            read_file(folder / kManifestName, {kManifestName, kMostManifestBytes}, folder));
  if (digest_of(text).hex() != folder.filename()) {
    return corrupt_bundle(concat((folder / kManifestName).native(), ": it is of another bundle"));
  }
  return parse_bundle_manifest(text);
}

/// Refuses a bundle that is older than the one in use.
Result<void> check_serial(const fs::path& root, const BundleManifest& manifest,
                          const std::string& digest) {
  const fs::path in_use = installed_bundle(root);
  if (in_use.empty() || in_use.filename() == digest) return {};
  const Result<BundleManifest> present = manifest_of(in_use);
  if (!present && present.error().code == ErrorCode::not_found) return {};
  if (!present) {
    return Error{ErrorCode::refused,
                 concat("the serial of the bundle in use is not known (", present.error().message,
                        "); --allow-older replaces it all the same")};
  }
  if (manifest.serial >= present->serial) return {};
  return Error{ErrorCode::refused,
               concat("the bundle's serial is ", manifest.serial, ", older than the one in use, ",
                      present->serial, "; --allow-older goes back to it")};
}

/// Makes `bundles/current` a link to `digest`, by one rename.
Result<void> flip(const fs::path& bundles, const std::string& digest) {
  const fs::path link = bundles / concat(kUnpacking, "link");
  std::error_code error;
  fs::create_directory_symlink(digest, link, error);
  if (error) return io("create", link, error);
  fs::rename(link, bundles / "current", error);
  if (error) return io("replace", bundles / "current", error);
  return {};
}

/// Moves the unpacked folder to its place. A folder that is there already is not trusted: the two
/// are exchanged, and it is removed.
Result<void> put_in_place(Unpacked& unpacked, const fs::path& place) {
  if (::renameat2(AT_FDCWD, unpacked.path().c_str(), AT_FDCWD, place.c_str(), RENAME_EXCHANGE) ==
      0) {
    return {};
  }
  std::error_code error;
  if (errno != ENOENT) {  // the file system cannot exchange
    KW_ASSIGN(Unpacked aside, Unpacked::make(place.parent_path()));
    fs::rename(place, aside.path() / "old", error);
    if (error && error != std::errc::no_such_file_or_directory) return io("replace", place, error);
  }
  fs::rename(unpacked.path(), place, error);
  if (error) return io("create", place, error);
  unpacked.release();
  return {};
}

/// Refuses a file or folder that anybody besides this user and root may write to.
Result<void> check_owner(const fs::path& path, const struct stat& status) {
  const bool own = status.st_uid == ::geteuid() || status.st_uid == 0;
  if (own && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0) return {};
  return Error{ErrorCode::refused,
               concat(path.native(), ": others than you and root may write to it")};
}

/// Checks the owners of a folder and of everything in it.
Result<void> check_owners(const fs::path& folder) {
  const auto check = [](const fs::path& path) -> Result<void> {
    struct stat status{};
    if (::lstat(path.c_str(), &status) != 0) {
      return io("read", path, std::error_code(errno, std::generic_category()));
    }
    // The mode of a link says nothing, and no link below the folder is followed.
    return S_ISLNK(status.st_mode) ? Result<void>() : check_owner(path, status);
  };
  KW_TRY(check(folder / ""));
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    KW_TRY(check(at->path()));
  }
  if (error) return io("read", folder, error);
  return {};
}

}  // namespace

std::vector<BundleDefect> bundle_defects(const fs::path& folder) {
  const Result<BundleManifest> manifest = manifest_of(folder);
  if (!manifest) return {{folder / kManifestName, manifest.error().message}};
  std::vector<BundleDefect> defects;
  std::set<fs::path> expected = {folder / kManifestName, folder / kSignatureName};
  for (const BundledFile& file : manifest->files) {
    const fs::path path = folder / file.name;
    expected.insert(path);
    const Result<std::string> bytes = read_file(path, {"file of a bundle", kMostFileBytes}, folder);
    const Result<void> whole = bytes ? check_content(file, *bytes) : Result<void>(bytes.error());
    if (!whole) defects.push_back({path, whole.error().message});
  }
  const FilesBelow below = files_below(folder, folder);
  for (const FilesBelow::Unread& one : below.unread) {
    defects.push_back({one.folder, one.error.message});
  }
  for (const fs::path& path : below.files) {
    if (!expected.contains(path)) defects.push_back({path, "it is not in the bundle's manifest"});
  }
  return defects;
}

Result<void> check_packaged_bundle(const fs::path& folder) {
  KW_ASSIGN(const BundleManifest manifest, manifest_of(folder));
  KW_TRY(check_owners(folder));
  const std::vector<BundleDefect> defects = bundle_defects(folder);
  if (!defects.empty()) {
    return corrupt_bundle(concat(defects.front().path.native(), ": ", defects.front().what));
  }
  FileDigests digests;
  for (const BundledFile& file : manifest.files) digests.emplace(file.name, file.digest);
  remember_checked(folder, std::move(digests));
  return {};
}

Result<InstallReport> install_bundle(const fs::path& file, const fs::path& root,
                                     const InstallOptions& options) {
  KW_ASSIGN(TarReader tar, TarReader::open(file, {"bundle", kMostBundleBytes}));
  KW_TRY(next_file(tar, kManifestName));
  KW_ASSIGN(const std::string text, tar.read(kMostManifestBytes));

  KW_ASSIGN(TarEntry entry, next_file(tar, {}));
  std::string signature;
  if (entry.name == kSignatureName) {
    KW_ASSIGN(signature, tar.read(kMostSignatureBytes));
    KW_ASSIGN(entry, next_file(tar, {}));
  }
  KW_ASSIGN(const std::string signer, accepted_signer(text, signature, options));
  KW_ASSIGN(const BundleManifest manifest, parse_bundle_manifest(text));

  InstallReport report{
      .digest = digest_of(text).hex(), .signer = signer, .serial = manifest.serial};
  const fs::path bundles = root / "bundles";
  const KeyLock turn = KeyLock::acquire(root, "install", options.patience);
  if (!turn.held()) {
    return Error{ErrorCode::unavailable, concat("another installation into ", root.native(),
                                                " does not end, or no lock can be had below it")};
  }
  if (!options.allow_older) KW_TRY(check_serial(root, manifest, report.digest));
  remove_leftovers(bundles);
  KW_ASSIGN(Unpacked unpacked, Unpacked::make(bundles));
  for (const BundledFile& bundled : manifest.files) {
    if (report.files > 0) {
      KW_ASSIGN(entry, next_file(tar, bundled.name));
    }
    if (entry.name != bundled.name) {
      return corrupt_bundle(
          concat("entry \"", entry.name, "\" stands where \"", bundled.name, "\" should"));
    }
    KW_ASSIGN(const std::string bytes, tar.read(bundled.bytes));
    KW_TRY(check_content(bundled, bytes));
    KW_TRY(write_below(unpacked.path(), bundled.name, bytes));
    ++report.files;
    report.bytes += static_cast<std::int64_t>(bytes.size());
  }
  KW_ASSIGN(const std::optional<TarEntry> more, tar.next());
  if (more) return corrupt_bundle(concat("entry \"", more->name, "\" is not in the manifest"));
  // The manifest is kept, so that the installed files can be checked again.
  KW_TRY(write_below(unpacked.path(), kManifestName, text));
  if (!signature.empty()) KW_TRY(write_below(unpacked.path(), kSignatureName, signature));

  const fs::path place = bundles / report.digest;
  KW_TRY(put_in_place(unpacked, place));
  if (const std::vector<BundleDefect> defects = bundle_defects(place); !defects.empty()) {
    return corrupt_bundle(concat("what was unpacked is not whole: ", defects.front().path.native(),
                                 ": ", defects.front().what));
  }
  KW_TRY(flip(bundles, report.digest));
  return report;
}

fs::path installed_bundle(const fs::path& root) {
  std::error_code error;
  const fs::path bundles = root / "bundles";
  const fs::path name = fs::read_symlink(bundles / "current", error);
  return error || !is_digest(name.native()) ? fs::path() : bundles / name;
}

std::string bundle_of(const fs::path& layer) {
  std::error_code error;
  const fs::path folder = fs::canonical(layer, error);
  if (error || !is_digest(folder.filename().native())) return {};
  return fs::is_regular_file(folder / kManifestName, error) ? folder.filename().native() : "";
}

Result<std::vector<std::string>> read_trusted_keys(const fs::path& file) {
  const Result<InputFile> opened = InputFile::open(file, {"file of trusted keys", 1 << 20});
  if (!opened) return Error{ErrorCode::invalid_argument, opened.error().message};
  struct stat status{};
  if (::fstat(opened->descriptor(), &status) != 0) {
    return Error{ErrorCode::io, concat("cannot read ", file.native(), ": ",
                                       std::generic_category().message(errno))};
  }
  if (const Result<void> owned = check_owner(file, status); !owned) {
    return Error{ErrorCode::invalid_argument, owned.error().message};
  }
  KW_ASSIGN(const std::string text, opened->read(0, static_cast<std::size_t>(opened->bytes())));
  std::vector<std::string> keys;
  int line = 0;
  for (std::string_view key : split(text, '\n')) {
    ++line;
    key = trim(key.substr(0, key.find('#')));
    if (key.empty()) continue;
    // The contents of a line are never shown, because they may be a secret.
    const auto refused = [&](std::string_view why) {
      return Error{ErrorCode::invalid_argument, concat(file.native(), ":", line, ": ", why)};
    };
    const bool hex = key.find_first_not_of("0123456789abcdef") == std::string_view::npos;
    if (hex && key.size() == kSecretKeyDigits) {
      return refused(concat("this is a secret key; the public one is ",
                            fs::path(file).replace_extension(".pub").native()));
    }
    if (!hex || key.size() != kPublicKeyDigits) {
      return refused(concat("no key of ", kPublicKeyDigits, " hex digits, but ", key.size(),
                            hex ? " of them" : " characters"));
    }
    keys.emplace_back(key);
  }
  return keys;
}

}  // namespace kernwright
