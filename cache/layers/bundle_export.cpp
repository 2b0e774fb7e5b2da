#include <algorithm>
#include <map>
#include <set>
#include <type_traits>
#include <utility>

#include "cache/layers/bundle.h"
#include "cache/layers/bundle_manifest.h"
#include "cache/layers/compact.h"
#include "support/files.h"
#include "support/hash.h"
#include "support/libraries/signing.h"
#include "support/libraries/tar.h"
#include "support/text.h"
#include "support/try.h"
#include "support/version.h"

namespace kernwright {
namespace {

namespace fs = std::filesystem;

constexpr FileKind kBundled{"file of a bundle", kMostFileBytes};

/// The files of a bundle, by their names in the bundle.
class Collection {
 public:
  explicit Collection(fs::path root) : root_(std::move(root)) {}

  void add(const fs::path& file) {
    files_.emplace(file.lexically_relative(root_).generic_string(), file);
  }
  const std::map<std::string, fs::path>& files() const { return files_; }
  const fs::path& root() const { return root_; }

 private:
  fs::path root_;
  std::map<std::string, fs::path> files_;
};

std::vector<std::string> sorted(const std::set<std::string>& texts) {
  return {texts.begin(), texts.end()};
}

/// Leaves of all that was listed the readable files, which some lookup may serve. `read` is the
/// contents of a listed file, and `run_of` returns the file with its head. Errors: `corrupt` if
/// some cannot be read for a reason outside of the files.
template <typename Listed, typename T, typename RunOf>
Result<std::vector<Listed>> served(std::vector<Listed> all, Lookup<T> Listed::* read,
                                   const RunOf& run_of, const ExportOptions& options) {
  for (const Listed& listed : all) {
    const Lookup<T>& found = listed.*read;
    if (found.reason == MissReason::unreadable) return Error{ErrorCode::corrupt, found.detail};
  }
  std::erase_if(all, [read](const Listed& listed) { return !(listed.*read); });
  std::vector<std::invoke_result_t<RunOf, const Listed&>> runs;
  for (const Listed& listed : all) runs.push_back(run_of(listed));
  std::set<fs::path> left_out = superseded(runs, options.now);
  for (const auto& run : runs) {
    if (!options.sku.empty() && run.head.key.sku != options.sku) left_out.insert(run.file);
  }
  std::erase_if(all, [&left_out](const Listed& one) { return left_out.contains(one.path); });
  return all;
}

RecordRun record_run(const RecordStore::Listed& listed) {
  return {listed.path, head_of(*listed.record.value)};
}

RecordStore::FamilyRun family_run(const RecordStore::ListedFamily& listed) {
  return {listed.path, listed.family.value->head};
}

/// Returns the decisions on each key that hold.
std::map<std::string, Decisions> decisions_of(
    const std::vector<RecordStore::ListedOverride>& overrides) {
  std::map<std::string, std::vector<Override>> by_key;
  for (const RecordStore::ListedOverride& listed : overrides) {
    by_key[listed.override.value->key.text()].push_back(*listed.override.value);
  }
  std::map<std::string, Decisions> decisions;
  for (auto& [key, of_key] : by_key) {
    std::ranges::stable_sort(of_key, {}, &Override::number);
    decisions[key].add(of_key);
  }
  return decisions;
}

/// Adds the bits of the candidate that decisions make the answer, for each key for which it is
/// neither the winner of a run nor a kernel of a family.
void add_decided(const std::vector<RecordStore::Listed>& runs,
                 const std::vector<RecordStore::ListedFamily>& families,
                 const std::map<std::string, Decisions>& decisions, const ArtifactStore& artifacts,
                 Collection& collection, ExportReport& report) {
  std::map<std::string, std::vector<const TuningRecord*>> by_key;
  for (const RecordStore::Listed& listed : runs) {
    by_key[listed.record.value->key.text()].push_back(&*listed.record.value);
  }
  const auto add = [&](const HeadWinner& served) {
    if (served.artifact.empty() || !artifacts.get(served.artifact)) return false;
    collection.add(artifacts.path(served.artifact));
    return true;
  };
  const auto is_kernel = [&families](std::string_view key, const auto& is_choice) {
    return std::ranges::any_of(families, [&](const RecordStore::ListedFamily& listed) {
      const FamilyHead& head = listed.family.value->head;
      return head.key.text() == key &&
             std::ranges::any_of(head.kernels, is_choice, &FamilyKernel::choice);
    });
  };
  for (const auto& [key, decided] : decisions) {
    const auto lack = [&report, &key](std::string_view id, std::string_view why) {
      std::string text =
          concat(key, ": ", id, why, " and has no bits in the bundle; sweep the problem again");
      // Several runs may have the same one.
      if (std::ranges::find(report.without_bits, text) != report.without_bits.end()) return;
      report.without_bits.push_back(std::move(text));
    };
    if (const std::optional<Override>& pin = decided.pin()) {
      const auto is_pin = [&pin](const Choice& choice) { return choice == pin->choice; };
      const bool has = std::ranges::any_of(by_key[key], [&](const TuningRecord* record) {
        if (is_pin(record->winner.choice)) return true;
        const std::optional<HeadWinner> served = stand_in(*record, is_pin);
        return served && add(*served);
      });
      if (!has && !is_kernel(key, is_pin)) lack(pin->choice.id(), " is pinned");
      continue;
    }
    for (const TuningRecord* record : by_key[key]) {
      if (!decided.banned(record->winner.choice.id())) continue;
      const std::optional<HeadWinner> served = stand_in(
          *record, [&decided](const Choice& choice) { return !decided.banned(choice.id()); });
      if (served && !add(*served)) lack(served->choice.id(), " stands in for a banned winner");
    }
  }
}

Result<void> write(const fs::path& file, const BundleManifest& manifest, const std::string& text,
                   const std::string& signature, const Collection& collection) {
  KW_ASSIGN(TarWriter tar, TarWriter::create(file));
  KW_TRY(tar.add(kManifestName, text));
  if (!signature.empty()) {
    KW_TRY(tar.add(kSignatureName, signature));
  }
  for (const BundledFile& bundled : manifest.files) {
    KW_ASSIGN(const std::string bytes,
              read_file(collection.files().at(bundled.name), kBundled, collection.root()));
    if (digest_of(bytes).hex() != bundled.digest) {
      return Error{ErrorCode::corrupt, concat(bundled.name, " changed while it was packed")};
    }
    KW_TRY(tar.add(bundled.name, bytes));
  }
  return tar.finish();
}

Result<ExportReport> export_as_listed(const TieredCache& cache, const fs::path& file,
                                      const ExportOptions& options) {
  ExportReport report;
  Collection collection(cache.root());
  std::set<std::string> skus;
  std::set<std::string> devices;
  const auto add = [&](const fs::path& path, const RecordKey& key, const std::string& device) {
    collection.add(path);
    skus.insert(key.sku);
    if (!device.empty()) devices.insert(device);
  };
  const auto add_bits = [&](const std::string& artifact, std::string_view whose,
                            const RecordKey& key, std::string_view remedy) -> Result<void> {
    if (const Lookup<CompiledKernel> bits = cache.artifacts().get(artifact); !bits) {
      return Error{ErrorCode::not_found, concat(whose, " bits of ", key.text(),
                                                " are not stored: ", bits.detail, "; ", remedy)};
    }
    collection.add(cache.artifacts().path(artifact));
    return {};
  };
  KW_ASSIGN(const std::vector<RecordStore::Listed> runs,
            served(cache.records().list(), &RecordStore::Listed::record, record_run, options));
  for (const RecordStore::Listed& listed : runs) {
    const TuningRecord& record = *listed.record.value;
    KW_TRY(add_bits(record.winner.artifact, "the winner's", record.key, "prewarm compiles them"));
    add(listed.path, record.key, record.device_uuid);
    ++report.records;
  }
  KW_ASSIGN(const std::vector<RecordStore::ListedFamily> families,
            served(cache.records().list_families(), &RecordStore::ListedFamily::family, family_run,
                   options));
  for (const RecordStore::ListedFamily& listed : families) {
    const FamilyRecord& family = *listed.family.value;
    for (const FamilyKernel& kernel : family.head.kernels) {
      KW_TRY(add_bits(kernel.artifact, concat(kernel.choice.id(), "'s"), family.head.key,
                      "tune the family again"));
    }
    add(listed.path, family.head.key, family.device_uuid);
    ++report.families;
  }
  if (report.records + report.families == 0) {
    return Error{ErrorCode::not_found, concat("no record", options.sku.empty() ? "" : " for ",
                                              options.sku, " in ", cache.root().native())};
  }
  std::vector<RecordStore::ListedOverride> overrides = cache.records().list_overrides();
  std::erase_if(overrides, [&options](const RecordStore::ListedOverride& listed) {
    if (!listed.override) return true;
    return !options.sku.empty() && listed.override.value->key.sku != options.sku;
  });
  for (const RecordStore::ListedOverride& listed : overrides) collection.add(listed.path);
  report.overrides = static_cast<std::int64_t>(overrides.size());
  add_decided(runs, families, decisions_of(overrides), cache.artifacts(), collection, report);
  BundleManifest manifest{.kernwright = std::string(kernwright_version()),
                          .serial = options.serial,
                          .skus = sorted(skus),
                          .devices = sorted(devices),
                          .files = {}};
  for (const auto& [name, path] : collection.files()) {
    KW_ASSIGN(const std::string bytes, read_file(path, kBundled, cache.root()));
    manifest.files.push_back({name, bytes.size(), digest_of(bytes).hex()});
    if (entry_kind(name) == "artifact") ++report.artifacts;
  }
  const std::string text = to_json(manifest);
  if (text.size() > kMostManifestBytes) {
    return Error{ErrorCode::corrupt, concat("the bundle's manifest has ", text.size(),
                                            " bytes, the most is ", kMostManifestBytes)};
  }
  KW_TRY(parse_bundle_manifest(text));
  std::string signature;
  if (!options.secret_key.empty()) {
    KW_ASSIGN(signature, sign(signed_text(text), options.secret_key));
  }
  KW_TRY(write(file, manifest, text, signature, collection));
  report.digest = digest_of(text).hex();
  return report;
}

}  // namespace

Result<ExportReport> export_bundle(const TieredCache& cache, const fs::path& file,
                                   const ExportOptions& options) {
  // Another process may remove a file between its listing and its reading.
  constexpr int kMostTimes = 20;
  for (int time = 1;; ++time) {
    const auto files = [&cache] { return files_below(cache.root() / "v1", cache.root()).files; };
    const std::vector<fs::path> before = files();
    Result<ExportReport> exported = export_as_listed(cache, file, options);
    if (exported || time == kMostTimes || files() == before) return exported;
  }
}

}  // namespace kernwright
