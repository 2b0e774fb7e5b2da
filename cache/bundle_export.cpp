#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "cache/bundle.h"
#include "cache/bundle_manifest.h"
#include "cache/compact.h"
#include "support/files.h"
#include "support/hash.h"
#include "support/signing.h"
#include "support/tar.h"
#include "support/text.h"
#include "support/version.h"

namespace kernwright {
namespace {

namespace fs = std::filesystem;

/// The files of a bundle by their names in it.
class Collection {
 public:
  explicit Collection(fs::path root) : root_(std::move(root)) {}

  void add(const fs::path& file) {
    files_.emplace(file.lexically_relative(root_).generic_string(), file);
  }
  const std::map<std::string, fs::path>& files() const { return files_; }

 private:
  fs::path root_;
  std::map<std::string, fs::path> files_;
};

std::vector<std::string> sorted(const std::set<std::string>& texts) {
  return {texts.begin(), texts.end()};
}

/// Runs that some lookup may serve.
std::vector<RecordStore::Listed> served_runs(const TieredCache& cache, const std::string& sku) {
  std::vector<RecordStore::Listed> runs;
  std::map<std::string, std::vector<RecordRun>> by_key;
  for (RecordStore::Listed& listed : cache.records().list()) {
    if (!listed.record || (!sku.empty() && listed.record.value->key.sku != sku)) continue;
    by_key[listed.record.value->key.text()].push_back({listed.path, head_of(*listed.record.value)});
    runs.push_back(std::move(listed));
  }
  std::erase_if(runs, [&](const RecordStore::Listed& listed) {
    const RecordRun run = {listed.path, head_of(*listed.record.value)};
    const std::vector<RecordRun>& others = by_key[run.head.key.text()];
    return std::any_of(others.begin(), others.end(),
                       [&](const RecordRun& other) { return always_before(other, run); });
  });
  return runs;
}

Result<void> write(const fs::path& file, const BundleManifest& manifest, const std::string& text,
                   const std::string& signature, const Collection& collection) {
  Result<TarWriter> tar = TarWriter::create(file);
  if (!tar) return tar.error();
  if (Result<void> added = tar->add(kManifestName, text); !added) return added;
  if (!signature.empty()) {
    if (Result<void> added = tar->add(kSignatureName, signature); !added) return added;
  }
  for (const BundledFile& bundled : manifest.files) {
    const Result<std::string> bytes = read_file(collection.files().at(bundled.name));
    if (!bytes) return bytes.error();
    if (digest_of(*bytes).hex() != bundled.digest) {
      return Error{ErrorCode::corrupt, concat(bundled.name, " changed while it was packed")};
    }
    if (Result<void> added = tar->add(bundled.name, *bytes); !added) return added;
  }
  return tar->finish();
}

}  // namespace

Result<ExportReport> export_bundle(const TieredCache& cache, const fs::path& file,
                                   const ExportOptions& options) {
  ExportReport report;
  Collection collection(cache.root());
  std::set<std::string> skus;
  std::set<std::string> devices;
  for (const RecordStore::Listed& listed : served_runs(cache, options.sku)) {
    const TuningRecord& record = *listed.record.value;
    const fs::path artifact = cache.artifacts().path(record.winner.artifact);
    if (const Lookup<CompiledKernel> bits = cache.artifacts().get(record.winner.artifact); !bits) {
      return Error{ErrorCode::not_found,
                   concat("the winner's bits of ", record.key.text(),
                          " are not stored: ", bits.detail, "; prewarm compiles them")};
    }
    collection.add(listed.path);
    collection.add(artifact);
    skus.insert(record.key.sku);
    if (!record.device_uuid.empty()) devices.insert(record.device_uuid);
    ++report.records;
  }
  if (report.records == 0) {
    return Error{ErrorCode::not_found, concat("no record", options.sku.empty() ? "" : " for ",
                                              options.sku, " in ", cache.root().native())};
  }
  for (const RecordStore::ListedOverride& listed : cache.records().list_overrides()) {
    if (!listed.override) continue;
    if (!options.sku.empty() && listed.override.value->key.sku != options.sku) continue;
    collection.add(listed.path);
    ++report.overrides;
  }
  BundleManifest manifest{.kernwright = std::string(kernwright_version()),
                          .skus = sorted(skus),
                          .devices = sorted(devices),
                          .files = {}};
  for (const auto& [name, path] : collection.files()) {
    const Result<std::string> bytes = read_file(path);
    if (!bytes) return bytes.error();
    manifest.files.push_back({name, bytes->size(), digest_of(*bytes).hex()});
    if (entry_kind(name) == "artifact") ++report.artifacts;
  }
  const std::string text = to_json(manifest);
  std::string signature;
  if (!options.secret_key.empty()) {
    Result<std::string> made = sign(signed_text(text), options.secret_key);
    if (!made) return made.error();
    signature = *std::move(made);
  }
  // Written beside its place, so that a killed export leaves no half bundle under its name.
  const fs::path partial = fs::path(file).concat(".partial");
  std::error_code error;
  if (Result<void> written = write(partial, manifest, text, signature, collection); !written) {
    fs::remove(partial, error);
    return written.error();
  }
  fs::rename(partial, file, error);
  if (error) {
    return Error{ErrorCode::io, concat("cannot write ", file.native(), ": ", error.message())};
  }
  report.digest = digest_of(text).hex();
  return report;
}

}  // namespace kernwright
