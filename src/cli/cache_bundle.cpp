// The actions of `kernwright cache` on bundles.

#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/bundle.h"
#include "cli/cache_actions.h"
#include "cli/output.h"
#include "support/file_descriptor.h"
#include "support/files.h"
#include "support/signing.h"
#include "support/text.h"

namespace kernwright::cli {
namespace {

/// Writes a secret that nobody else may ever read, and no file over another.
Result<void> write_secret(const std::filesystem::path& path, const std::string& text) {
  FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  const bool written =
      file.valid() &&
      ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
      file.close();
  if (written) return {};
  return Error{ErrorCode::io, concat("cannot create ", path.native(), ": ",
                                     std::generic_category().message(errno))};
}

Result<std::string> the_word(const CacheFlags& flags, std::string_view what) {
  if (flags.words.size() == 2) return flags.words[1];
  return Error{ErrorCode::invalid_argument,
               concat("cache ", flags.words.front(), " takes one ", what, ", ",
                      flags.words.size() - 1, " were given")};
}

}  // namespace

Status export_cache(const CacheFlags& flags) {
  const Result<std::string> file = the_word(flags, "file to write");
  if (!file) return report(file.error());
  ExportOptions options{.sku = flags.service.sku, .secret_key = {}};
  if (!flags.key.empty()) {
    const Result<std::string> key = read_file(flags.key.getValue());
    if (!key) return report(key.error());
    options.secret_key = trim(*key);
  }
  const Result<ExportReport> exported = export_bundle(TieredCache(flags.root()), *file, options);
  if (!exported) return report(exported.error());
  if (flags.json) {
    print_json(Json{{"bundle", *file},
                    {"digest", exported->digest},
                    {"signed", !flags.key.empty()},
                    {"records", exported->records},
                    {"overrides", exported->overrides},
                    {"artifacts", exported->artifacts}});
  } else {
    print(concat(*file, ": ", exported->records, " records, ", exported->artifacts, " artifacts, ",
                 exported->overrides, " decisions, ", flags.key.empty() ? "not signed" : "signed",
                 "; ", exported->digest));
  }
  return Status::ok;
}

Status install_cache(const CacheFlags& flags) {
  const Result<std::string> file = the_word(flags, "bundle");
  if (!file) return report(file.error());
  InstallOptions options;
  options.allow_unsigned = flags.allow_unsigned;
  if (!flags.trusted_keys.empty()) {
    Result<std::vector<std::string>> keys = read_trusted_keys(flags.trusted_keys.getValue());
    if (!keys) return report(keys.error());
    options.trusted_keys = *std::move(keys);
  }
  const Result<InstallReport> installed = install_bundle(*file, flags.root(), options);
  if (!installed) return report(installed.error());
  if (flags.json) {
    print_json(Json{{"root", flags.root().string()},
                    {"digest", installed->digest},
                    {"signer", installed->signer},
                    {"files", installed->files},
                    {"bytes", installed->bytes}});
  } else {
    print(concat(installed->files, " files, ", installed->bytes, " bytes, in use at ",
                 installed_bundle(flags.root()).string(),
                 installed->signer.empty() ? "; signed by nobody who is trusted"
                                           : "; signed by " + installed->signer));
  }
  return Status::ok;
}

Status make_keys(const CacheFlags& flags) {
  const Result<std::string> name = the_word(flags, "name of a key");
  if (!name) return report(name.error());
  const Result<KeyPair> keys = make_key_pair();
  if (!keys) return report(keys.error());
  const std::string secret = *name + ".key";
  const std::string shared = *name + ".pub";
  if (Result<void> made = write_secret(secret, keys->secret_key + "\n"); !made) {
    return report(made.error());
  }
  if (Result<void> made = publish_file(shared, keys->public_key + "\n"); !made) {
    return report(made.error());
  }
  if (flags.json) {
    print_json(Json{{"secret_key", secret}, {"public_key", shared}, {"key", keys->public_key}});
  } else {
    print(concat(secret, " signs bundles (export --key); ", shared,
                 " goes into the file of trusted keys (install --trusted-keys)"));
  }
  return Status::ok;
}

}  // namespace kernwright::cli
