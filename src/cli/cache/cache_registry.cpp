// The actions of `kernwright cache` on registries.

#include <string>

#include "cache/layers/bundle_manifest.h"
#include "cli/cache/cache_actions.h"
#include "cli/cache/registry.h"
#include "cli/output.h"
#include "support/files.h"
#include "support/libraries/tar.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright::cli {
namespace {

constexpr FileKind kBundle{"bundle", kMostBundleBytes};

/// The bytes of a bundle; a file that is something else is refused before it is uploaded.
Result<std::string> read_bundle(const std::string& file) {
  KW_ASSIGN(TarReader tar, TarReader::open(file, kBundle));
  KW_ASSIGN(const std::optional<TarEntry> first, tar.next());
  if (!first || first->name != kManifestName) {
    return Error{ErrorCode::corrupt,
                 concat(file, " is no bundle: it does not begin with ", kManifestName)};
  }
  return read_file(file, kBundle);
}

Result<void> two_words(const CacheFlags& flags, std::string_view usage) {
  if (flags.words.size() == 3) return {};
  return Error{ErrorCode::invalid_argument,
               concat("cache ", flags.words.front(), " takes ", usage, ", not ",
                      flags.words.size() - 1, flags.words.size() == 2 ? " word" : " words")};
}

}  // namespace

Status push_bundle(const CacheFlags& flags) {
  if (const auto fits = two_words(flags, "BUNDLE oci://registry/name:tag"); !fits) {
    return report(fits.error());
  }
  const Result<RegistryReference> reference = RegistryReference::parse(flags.words[2]);
  if (!reference) return report(reference.error());
  const Result<std::string> bundle = read_bundle(flags.words[1]);
  if (!bundle) return report(bundle.error());
  Result<Registry> registry = Registry::open(*reference);
  if (!registry) return report(registry.error());
  const Result<Registry::Pushed> pushed = registry->push(*bundle);
  if (!pushed) return report(pushed.error());
  if (flags.json) {
    print_json(Json{{"reference", reference->text()},
                    {"manifest", pushed->manifest_digest},
                    {"blob", pushed->blob_digest},
                    {"bytes", bundle->size()},
                    {"already_there", pushed->already_there}});
  } else {
    print(concat(reference->text(), ": ", format_bytes(static_cast<double>(bundle->size())),
                 pushed->already_there ? ", which the registry had already" : " uploaded"));
    print(concat("  ", pushed->manifest_digest));
  }
  return Status::ok;
}

Status pull_bundle(const CacheFlags& flags) {
  if (const auto fits = two_words(flags, "oci://registry/name:tag BUNDLE"); !fits) {
    return report(fits.error());
  }
  const Result<RegistryReference> reference = RegistryReference::parse(flags.words[1]);
  if (!reference) return report(reference.error());
  Result<Registry> registry = Registry::open(*reference);
  if (!registry) return report(registry.error());
  const Result<Registry::Pulled> pulled = registry->pull();
  if (!pulled) return report(pulled.error());
  const std::string& file = flags.words[2];
  if (auto written = publish_file(file, pulled->bundle); !written) return report(written.error());
  if (flags.json) {
    print_json(Json{{"reference", reference->text()},
                    {"manifest", pulled->manifest_digest},
                    {"bundle", file},
                    {"bytes", pulled->bundle.size()}});
  } else {
    print(concat(file, ": ", format_bytes(static_cast<double>(pulled->bundle.size())), " of ",
                 reference->text()));
    print(concat("  ", pulled->manifest_digest));
  }
  return Status::ok;
}

}  // namespace kernwright::cli
