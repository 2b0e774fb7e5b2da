// The actions of `kernwright cache` on bundles.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>

#include "cache/layers/bundle.h"
#include "cli/cache/cache_actions.h"
#include "cli/output.h"
#include "support/files.h"
#include "support/libraries/signing.h"
#include "support/text.h"
#include "support/utc.h"

namespace kernwright::cli {
namespace {

constexpr FileKind kSecretKey{"secret key", 4096};

/// Returns the name of a pair of keys. A user may pass the name of one of its two files instead.
std::string pair_name(std::string name) {
  for (const std::string_view extension : {".key", ".pub"}) {
    if (name.size() > extension.size() && name.ends_with(extension)) {
      name.resize(name.size() - extension.size());
      break;
    }
  }
  return name;
}

std::uint64_t utc_seconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::seconds>(now).count());
}

/// Warns of a serial that no bundle which is exported by the clock will reach for long.
void warn_of_future(std::uint64_t serial) {
  constexpr auto kDay = std::uint64_t{24} * 60 * 60;
  const std::uint64_t now = utc_seconds();
  if (serial <= now + kDay) return;
  report_warning(concat("the bundle's serial, ", serial, ", is ", (serial - now) / kDay,
                        " days ahead of this machine's clock; until then bundles whose serial is "
                        "the time of their export are refused as older, unless install is given "
                        "--allow-older"));
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
  ExportOptions options{
      .sku = flags.service.sku, .secret_key = {}, .serial = flags.serial, .now = utc_now()};
  if (flags.serial.getNumOccurrences() == 0) options.serial = utc_seconds();
  if (!flags.key.empty()) {
    const Result<std::string> key = read_file(flags.key.getValue(), kSecretKey);
    if (!key) return report(key.error());
    options.secret_key = trim(*key);
  }
  const Result<ExportReport> exported = export_bundle(TieredCache(flags.root()), *file, options);
  if (!exported) return report(exported.error());
  warn_of_future(options.serial);
  for (const std::string& one : exported->without_bits) report_warning(one);
  if (flags.json) {
    print_json(Json{{"bundle", *file},
                    {"digest", exported->digest},
                    {"serial", options.serial},
                    {"signed", !flags.key.empty()},
                    {"records", exported->records},
                    {"families", exported->families},
                    {"overrides", exported->overrides},
                    {"artifacts", exported->artifacts},
                    {"without_bits", exported->without_bits}});
  } else {
    print(concat(*file, ": ", counted_records(exported->records, exported->families), ", ",
                 counted(exported->artifacts, "artifact"), ", ",
                 counted(exported->overrides, "decision"), ", ",
                 flags.key.empty() ? "not signed" : "signed", "; serial ", options.serial, "; ",
                 exported->digest));
  }
  return Status::ok;
}

Status install_cache(const CacheFlags& flags) {
  const Result<std::string> file = the_word(flags, "bundle");
  if (!file) return report(file.error());
  InstallOptions options;
  options.allow_unsigned = flags.allow_unsigned;
  options.allow_older = flags.allow_older;
  if (!flags.trusted_keys.empty()) {
    Result<std::vector<std::string>> keys = read_trusted_keys(flags.trusted_keys.getValue());
    if (!keys) return report(keys.error());
    options.trusted_keys = *std::move(keys);
  }
  const Result<InstallReport> installed = install_bundle(*file, flags.root(), options);
  if (!installed) return report(installed.error());
  warn_of_future(installed->serial);
  if (flags.json) {
    print_json(Json{{"root", flags.root().string()},
                    {"digest", installed->digest},
                    {"signer", installed->signer},
                    {"serial", installed->serial},
                    {"files", installed->files},
                    {"bytes", installed->bytes}});
  } else {
    print(concat(counted(installed->files, "file"), ", ", counted(installed->bytes, "byte"),
                 ", serial ", installed->serial, ", in use at ",
                 installed_bundle(flags.root()).string(),
                 installed->signer.empty() ? "; signed by nobody who is trusted"
                                           : "; signed by " + installed->signer));
  }
  return Status::ok;
}

Status make_keys(const CacheFlags& flags) {
  const Result<std::string> word = the_word(flags, "name of a key");
  if (!word) return report(word.error());
  const Result<KeyPair> keys = make_key_pair();
  if (!keys) return report(keys.error());
  const std::string name = pair_name(*word);
  const std::string secret = name + ".key";
  const std::string shared = name + ".pub";
  // Nobody else may read the secret, and no existing file is replaced.
  if (Result<void> made = create_file(secret, keys->secret_key + "\n", 0600); !made) {
    return report(made.error());
  }
  if (Result<void> made = create_file(shared, keys->public_key + "\n", 0644); !made) {
    std::error_code ignored;
    std::filesystem::remove(secret, ignored);
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
