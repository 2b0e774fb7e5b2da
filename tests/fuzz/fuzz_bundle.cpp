// Fuzzes bundles: the manifest, and the archive itself, which is installed without a trusted key.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <stdlib.h>
#include <string>
#include <string_view>

#include "cache/layers/bundle.h"
#include "cache/layers/bundle_manifest.h"
#include "support/files.h"

using namespace kernwright;

namespace {

namespace fs = std::filesystem;

void require(bool holds) {
  if (!holds) std::abort();
}

const fs::path& folder() {
  static const fs::path made = [] {
    std::string name = (fs::temp_directory_path() / "kernwright-fuzz-XXXXXX").native();
    require(::mkdtemp(name.data()) != nullptr);
    return fs::path(name);
  }();
  return made;
}

void check_manifest(std::string_view text) {
  const Result<BundleManifest> manifest = parse_bundle_manifest(text);
  if (!manifest) return;
  const std::string written = to_json(*manifest);
  const Result<BundleManifest> again = parse_bundle_manifest(written);
  require(again && again->files == manifest->files && to_json(*again) == written);
  for (const BundledFile& file : manifest->files) {
    require(file.name.find("..") == std::string::npos ||
            file.name.find("/..") == std::string::npos);
    require(file.name.starts_with("v1/"));
  }
}

void check_archive(std::string_view bytes) {
  const fs::path root = folder() / "root";
  require(publish_file(folder() / "bundle", bytes).has_value());
  const Result<InstallReport> report =
      install_bundle(folder() / "bundle", root, {.trusted_keys = {}, .allow_unsigned = true});
  // A refused bundle is not in use, and has left nothing outside of its own folder.
  require(report.has_value() || installed_bundle(root).empty());
  // An accepted bundle has the files of its manifest, and nothing else.
  require(!report.has_value() || bundle_defects(installed_bundle(root)).empty());
  for (const std::string& name : list_directory(folder())) {
    require(name == "bundle" || name == "root");
  }
  std::error_code ignored;
  fs::remove_all(root, ignored);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  check_manifest(input);
  check_archive(input);
  return 0;
}
