// The actions of `kernwright cache` that only read the cache.

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>
#include <vector>

#include "cache/layers/bundle.h"
#include "cache/layers/tiered_cache.h"
#include "cache/stores/lookup_log.h"
#include "cli/cache/cache_actions.h"
#include "cli/output.h"
#include "cli/record_text.h"
#include "model/candidate/device_profile.h"
#include "service/sweep/worklist.h"
#include "support/files.h"
#include "support/json.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright::cli {
namespace {

/// The defects that were found, by file.
class CacheDefects {
 public:
  explicit CacheDefects(bool json) : json_(json) {}

  void note(const std::filesystem::path& path, std::string_view what) {
    rows_.push_back({{"path", path.string()}, {"defect", what}});
    if (!json_) print(concat(path.string(), ": ", what));
  }
  const Json& rows() const { return rows_; }

 private:
  bool json_;
  Json rows_ = Json::array();
};

/// Returns true if another process has removed a file since it was listed.
bool is_gone(const std::filesystem::path& file) {
  std::error_code error;
  return std::filesystem::symlink_status(file, error).type() ==
         std::filesystem::file_type::not_found;
}

/// Returns the folders of artifacts that could not be read. (`RecordStore::list` returns the
/// folders of records.)
std::vector<FilesBelow::Unread> unread_artifacts(const TieredCache& cache) {
  return files_below(cache.root() / "v1" / "artifacts", cache.root()).unread;
}

/// Checks the bundle that is in use and returns its folder; empty if there is none.
std::filesystem::path check_installed_bundle(const std::filesystem::path& root,
                                             CacheDefects& defects) {
  std::filesystem::path bundle = installed_bundle(root);
  if (!bundle.empty()) {
    for (const BundleDefect& defect : bundle_defects(bundle))
      defects.note(defect.path, defect.what);
    return bundle;
  }
  const std::filesystem::path link = root / "bundles" / "current";
  std::error_code error;
  const bool there = std::filesystem::exists(std::filesystem::symlink_status(link, error));
  if (error && error != std::errc::no_such_file_or_directory) {
    defects.note(link, error.message());
  } else if (there) {
    defects.note(link, "it is no link to a bundle beside it");
  }
  return {};
}

/// The contents of the bundle in use.
struct BundleContents {
  std::filesystem::path folder;  ///< empty: there is no bundle
  std::vector<RecordStore::ListedHead> records;
  std::vector<RecordStore::ListedFamily> families;
  std::size_t artifacts = 0;

  explicit BundleContents(std::filesystem::path bundle) : folder(std::move(bundle)) {
    if (folder.empty()) return;
    records = RecordStore(folder).list_heads();
    families = RecordStore(folder).list_families();
    artifacts = ArtifactStore(folder).list().size();
  }

  std::string text() const {
    return concat("bundle in use: ", folder.string(), ", ",
                  counted_records(records.size(), families.size()), ", ",
                  counted(artifacts, "artifact"));
  }
  /// Returns null without a bundle.
  Json json() const {
    if (folder.empty()) return {};
    return {{"folder", folder.string()},
            {"records", records.size()},
            {"families", families.size()},
            {"artifacts", artifacts}};
  }
};

void list_family(const FamilyHead& head, std::string_view place) {
  print(head.key.problem);
  print(concat("  ", place, counted(head.kernels.size(), "kernel"),
               head.regret.sizes == 0
                   ? ""
                   : concat(", 95 % of sizes within ", format_share(head.regret.p95),
                            " of the best found")));
  print(concat("  (", head.key.sku, " ", head.created, ")"));
}

/// Looks at winners as lookups would, with one service for each SKU.
class WinnerCheck {
 public:
  explicit WinnerCheck(const CacheFlags& flags) : flags_(flags) {}

  /// Errors: from `AnswerFinder::check`.
  Result<void> check(const RecordHead& head, const CompiledKernel& bits) {
    if (!find_profile(head.key.sku)) return {};
    KW_ASSIGN(const ServiceCore* service, of(head));
    return service->answers().check(head, bits);
  }
  /// Errors: from the toolkit, or that there is none.
  Result<Builder::Recompiled> recompile(const RecordHead& head) {
    if (!find_profile(head.key.sku)) return Builder::Recompiled::other_code;
    KW_ASSIGN(ServiceCore * service, of(head));
    return service->recompile(head);
  }

 private:
  Result<ServiceCore*> of(const RecordHead& head) {
    std::shared_ptr<ServiceCore>& service = services_[head.key.sku];
    if (!service) {
      ServiceOptions options = flags_.service.options();
      options.sku = head.key.sku;
      KW_ASSIGN(service, ServiceCore::open(std::move(options)));
    }
    return service.get();
  }

  const CacheFlags& flags_;
  std::map<std::string, std::shared_ptr<ServiceCore>> services_;
};

}  // namespace

Status list_cache(const CacheFlags& flags) {
  const TieredCache cache(flags.root());
  bool whole = true;
  const auto left_out = [&whole](const std::filesystem::path& path, std::string_view why) {
    whole = false;
    report_warning(concat("not listed: ", path.string(), ": ", why));
  };
  Json rows = Json::array();
  for (const RecordStore::Listed& listed : cache.records().list()) {
    if (!listed.record) {
      left_out(listed.path, listed.record.detail);
      continue;
    }
    if (flags.json) {
      rows.push_back(record_json(*listed.record.value));
    } else {
      print_winner(Page(false), *listed.record.value,
                   concat(listed.record.value->key.sku, " ", listed.record.value->created));
    }
  }
  Json families = Json::array();
  for (const RecordStore::ListedFamily& listed : cache.records().list_families()) {
    if (!listed.family) {
      left_out(listed.path, listed.family.detail);
    } else if (flags.json) {
      families.push_back(parse_value(to_json(listed.family.value->head)));
    } else {
      list_family(listed.family.value->head, "");
    }
  }
  Json overrides = Json::array();
  for (const RecordStore::ListedOverride& listed : cache.records().list_overrides()) {
    if (!listed.override) {
      left_out(listed.path, listed.override.detail);
      continue;
    }
    const Override& made = *listed.override.value;
    if (flags.json) {
      overrides.push_back(parse_value(to_json(made)));
    } else {
      print(concat(to_string(made.action), " ", made.key.problem, "  ", made.choice.id(), "  ",
                   made.key.sku, " ", made.created, made.why.empty() ? "" : ": ", made.why));
    }
  }
  const std::size_t artifacts = cache.artifacts().list().size();
  for (const FilesBelow::Unread& one : unread_artifacts(cache)) {
    left_out(one.folder, one.error.message);
  }
  const BundleContents bundle(installed_bundle(cache.root()));
  for (const RecordStore::ListedHead& listed : bundle.records) {
    if (!listed.head) {
      left_out(listed.path, listed.head.detail);
    } else if (!flags.json) {
      const RecordHead& head = *listed.head.value;
      print(head.key.problem);
      print(concat("  in the bundle, ", head.winner.choice.id()));
      print(concat("  (", head.key.sku, " ", head.created, ")"));
    }
  }
  for (const RecordStore::ListedFamily& listed : bundle.families) {
    if (!listed.family) {
      left_out(listed.path, listed.family.detail);
    } else if (!flags.json) {
      list_family(listed.family.value->head, "in the bundle, ");
    }
  }
  if (flags.json) {
    print_json(Json{{"root", cache.root().string()},
                    {"records", rows},
                    {"families", families},
                    {"overrides", overrides},
                    {"artifacts", artifacts},
                    {"bundle", bundle.json()}});
  } else {
    print(concat(counted(artifacts, "artifact"), " in ", cache.root().string()));
    if (!bundle.folder.empty()) print(bundle.text());
  }
  return whole ? Status::ok : Status::failed;
}

Status verify_cache(const CacheFlags& flags) {
  const TieredCache cache(flags.root());
  CacheDefects defects(flags.json);
  WinnerCheck winners(flags);
  int records = 0;
  int families = 0;
  int recompiled = 0;
  int not_comparable = 0;
  for (const RecordStore::Listed& listed : cache.records().list()) {
    const std::filesystem::path& path = listed.path;
    if (!listed.record) {
      defects.note(path, concat(to_string(listed.record.reason), ": ", listed.record.detail));
      continue;
    }
    ++records;
    const Lookup<TrialTable> trials = read_trials(path, listed.record.value->key, cache.root());
    if (!trials && trials.reason != MissReason::absent) {
      defects.note(trials_file(path), concat(to_string(trials.reason), ": ", trials.detail));
    }
    const RecordHead head = head_of(*listed.record.value);
    const Lookup<CompiledKernel> bits = cache.artifact(head.winner.artifact);
    if (!bits) {
      if (is_gone(path)) {  // and its artifact after it
        --records;
        continue;
      }
      defects.note(path, concat("its winner's artifact ", head.winner.artifact, ": ",
                                to_string(bits.reason), ", ", bits.detail));
      continue;
    }
    if (const Result<void> served = winners.check(head, *bits.value); !served) {
      defects.note(path, served.error().message);
      continue;
    }
    if (!flags.recompile) continue;
    const Result<Builder::Recompiled> again = winners.recompile(head);
    if (!again) return report(again.error());
    if (*again == Builder::Recompiled::other_code) {
      ++not_comparable;
    } else {
      ++recompiled;
      if (*again == Builder::Recompiled::differs) {
        defects.note(path, concat("its winner's artifact ", head.winner.artifact,
                                  " is not what compiling it again gives"));
      }
    }
  }
  for (const RecordStore::ListedFamily& listed : cache.records().list_families()) {
    if (!listed.family) {
      defects.note(listed.path,
                   concat(to_string(listed.family.reason), ": ", listed.family.detail));
      continue;
    }
    ++families;
    for (const FamilyKernel& kernel : listed.family.value->head.kernels) {
      const Lookup<CompiledKernel> bits = cache.artifact(kernel.artifact);
      if (bits) continue;
      if (is_gone(listed.path)) {  // and its artifacts after it
        --families;
        break;
      }
      defects.note(listed.path, concat(kernel.choice.id(), "'s artifact ", kernel.artifact, ": ",
                                       to_string(bits.reason), ", ", bits.detail));
    }
  }
  for (const RecordStore::ListedOverride& listed : cache.records().list_overrides()) {
    if (listed.override) continue;
    defects.note(listed.path,
                 concat(to_string(listed.override.reason), ": ", listed.override.detail));
  }
  const std::vector<std::string> artifacts = cache.artifacts().list();
  for (const FilesBelow::Unread& one : unread_artifacts(cache)) {
    defects.note(one.folder, one.error.message);
  }
  for (const std::string& digest : artifacts) {
    Lookup<CompiledKernel> bits = cache.artifacts().get(digest);
    if (!bits && !is_gone(cache.artifacts().path(digest))) {
      defects.note(cache.artifacts().path(digest),
                   concat(to_string(bits.reason), ": ", bits.detail));
    }
  }
  const std::filesystem::path bundle = check_installed_bundle(cache.root(), defects);
  if (flags.json) {
    Json json = {{"root", cache.root().string()},
                 {"records", records},
                 {"families", families},
                 {"artifacts", artifacts.size()},
                 {"bundle", bundle.empty() ? Json() : Json(bundle.string())},
                 {"bundle_holds", BundleContents(bundle).json()},
                 {"defects", defects.rows()}};
    if (flags.recompile) {
      json["recompiled"] = recompiled;
      json["not_comparable"] = not_comparable;
    }
    print_json(json);
  } else {
    if (flags.recompile) {
      print(concat(counted(recompiled, "winner"), " compiled again, ", not_comparable,
                   " of other code, another compiler or an unknown SKU"));
    }
    if (!bundle.empty()) print(BundleContents(bundle).text());
    print(concat(counted_records(records, families), ", ", counted(artifacts.size(), "artifact"),
                 ", ", counted(defects.rows().size(), "defect")));
  }
  return defects.rows().empty() ? Status::ok : Status::failed;
}

Status show_misses(const CacheFlags& flags) {
  const LookupLog log = LookupLog::of_misses(flags.root());
  Json rows = Json::array();
  Json problems = Json::array();
  std::size_t unread = 0;
  const Result<std::vector<LoggedLookup>> counts = log.counts(&unread);
  if (!counts) return report(counts.error());
  if (unread > 0) report_warning(lines_left_out(unread, log.path()));
  for (const LoggedLookup& miss : *counts) {
    if (!flags.service.sku.empty() && miss.key.sku != flags.service.sku.getValue()) continue;
    if (std::find(problems.begin(), problems.end(), miss.key.problem) == problems.end()) {
      problems.push_back(miss.key.problem);
    }
    rows.push_back({{"problem", miss.key.problem},
                    {"target", miss.key.target},
                    {"sku", miss.key.sku},
                    {"policy", miss.key.policy.text()},
                    {"count", miss.count},
                    {"match", to_string(miss.match)},
                    {"reason", to_string(miss.reason)},
                    {"latest", miss.time}});
    if (!flags.json && !flags.worklist) {
      print(concat(miss.count, "  ", miss.key.text(), "  ", to_string(miss.match), " (",
                   to_string(miss.reason), ")"));
    }
  }
  if (flags.worklist) {
    print_json(Json{{"problems", problems}});
  } else if (flags.json) {
    print_json(Json{{"root", flags.root().string()}, {"misses", rows}});
  } else {
    print(concat(rows.size(), " keys missed, logged in ", log.path().string()));
  }
  return Status::ok;
}

}  // namespace kernwright::cli
