#include "service/report/report_sources.h"

#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "cache/layers/tiered_cache.h"
#include "model/operation/ranged_problem.h"
#include "service/sweep/worklist.h"
#include "support/files.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

namespace fs = std::filesystem;

/// The first byte of every file of a cache, which no text begins with.
constexpr char kCacheFile = '\x89';

/// A record's head, with the root of the cache that its file belongs to.
struct Located {
  RecordRun run;
  fs::path root;
};

bool is_better(const RecordHead& a, const RecordHead& b) {
  if (a.grade != b.grade) return a.grade < b.grade;
  if (a.trust != b.trust) return a.trust < b.trust;
  return a.created > b.created;
}

/// Collects the best record of each key, in the order in which keys are first met.
class Collector {
 public:
  explicit Collector(std::string sku) : sku_(std::move(sku)) {}

  Result<void> add_record(const fs::path& file) {
    const auto corrupt = [](const auto& lookup) {
      return Error{ErrorCode::corrupt, concat(to_string(lookup.reason), ": ", lookup.detail)};
    };
    if (file.extension() == ".kwf") {
      Lookup<FamilyRecord> family = read_family(file.native());
      if (!family) return corrupt(family);
      add(*std::move(family.value));
      return {};
    }
    const Lookup<TuningRecord> record = read_record(file.native());
    if (!record) return corrupt(record);
    add({{file.native(), head_of(*record.value)}, {}});
    return {};
  }

  void add(FamilyRecord family) {
    const FamilyHead& head = family.head;
    if (!sku_.empty() && head.key.sku != sku_) return;
    const auto [at, added] = family_place_.try_emplace(head.key.text(), sources.families.size());
    if (added) {
      sources.families.push_back(std::move(family));
      return;
    }
    FamilyRecord& best = sources.families[at->second];
    const bool is_better = head.trust != best.head.trust ? head.trust < best.head.trust
                                                         : head.created > best.head.created;
    if (is_better) best = std::move(family);
  }

  void add(Located located) {
    if (!sku_.empty() && located.run.head.key.sku != sku_) return;
    const auto [at, added] = place_.try_emplace(located.run.head.key.text(), best_.size());
    if (added) {
      best_.push_back(std::move(located));
    } else if (is_better(located.run.head, best_[at->second].run.head)) {
      best_[at->second] = std::move(located);
    }
  }

  ReportSources read() {
    for (const Located& located : best_) {
      const std::string& file = located.run.file;
      Lookup<TuningRecord> record = read_record(file, located.root);
      if (!record) {
        sources.defects.push_back(concat(to_string(record.reason), ": ", record.detail));
        continue;
      }
      sources.records.push_back(with_trials(*std::move(record.value), file, located.root));
    }
    return std::move(sources);
  }

  ReportSources sources;

 private:
  std::string sku_;
  std::vector<Located> best_;
  std::map<std::string, std::size_t> place_;         ///< of a key in `best_`
  std::map<std::string, std::size_t> family_place_;  ///< of a key in `sources.families`
};

/// The records of a cache, with the records of the bundle that is installed below it.
struct CacheContents {
  std::vector<Located> records;
  std::vector<FamilyRecord> families;
};

CacheContents contents_of(const fs::path& root, const std::vector<fs::path>& further,
                          std::vector<std::string>& defects) {
  CacheContents all;
  const auto is_read = [&defects](const auto& lookup) {
    if (!lookup) defects.push_back(concat(to_string(lookup.reason), ": ", lookup.detail));
    return static_cast<bool>(lookup);
  };
  const TieredCache cache(root, further);
  for (const fs::path& layer : cache.roots()) {
    const RecordStore store(layer);
    for (RecordStore::ListedHead& listed : store.list_heads()) {
      if (!is_read(listed.head)) continue;
      all.records.push_back({{listed.path.native(), *std::move(listed.head.value)}, layer});
    }
    for (RecordStore::ListedFamily& listed : store.list_families()) {
      if (is_read(listed.family)) all.families.push_back(*std::move(listed.family.value));
    }
  }
  return all;
}

void add_all(CacheContents contents, Collector& collector) {
  for (Located& located : contents.records) collector.add(std::move(located));
  for (FamilyRecord& family : contents.families) collector.add(std::move(family));
}

/// Returns a problem as records name it.
Result<std::string> named(const Problem& written, const Catalog& catalog) {
  if (!has_range(written)) {
    KW_ASSIGN(const BoundProblem bound, catalog.bind(written));
    return bound.text();
  }
  KW_ASSIGN(const Operation* operation, catalog.operation(written.operation()));
  KW_ASSIGN(const RangedProblem family, RangedProblem::bind(*operation, written));
  return family.text();
}

/// Returns the normalised problems of a worklist. Errors: from reading the file; the error of the
/// first entry that no operation accepts, with its place.
Result<std::vector<std::string>> problems_of(const fs::path& file, const Catalog& catalog,
                                             std::vector<std::string>& defects) {
  std::size_t unread = 0;
  KW_ASSIGN(const std::vector<WorklistEntry> entries, read_worklist(file, &unread));
  if (unread > 0) defects.push_back(lines_left_out(unread, file));
  std::vector<std::string> problems;
  for (const WorklistEntry& entry : entries) {
    Result<std::string> problem = named(entry.problem, catalog);
    if (!problem) {
      return Error{problem.error().code,
                   concat(file.native(), ":", entry.line, ": ", problem.error().message)};
    }
    problems.push_back(*std::move(problem));
  }
  return problems;
}

/// Adds the cache's records of the problems, and names the problems that it has none of.
void add_problems(const std::vector<std::string>& problems, const ReportInputs& inputs,
                  Collector& collector) {
  std::map<std::string, CacheContents> by_problem;
  CacheContents all = contents_of(inputs.cache, inputs.read_only_caches, collector.sources.defects);
  const auto is_asked = [&inputs](const RecordKey& key) {
    return inputs.sku.empty() || key.sku == inputs.sku;
  };
  for (Located& located : all.records) {
    const RecordKey& key = located.run.head.key;
    if (is_asked(key)) by_problem[key.problem].records.push_back(std::move(located));
  }
  for (FamilyRecord& family : all.families) {
    const RecordKey& key = family.head.key;
    if (is_asked(key)) by_problem[key.problem].families.push_back(std::move(family));
  }
  std::set<std::string> seen;
  for (const std::string& problem : problems) {
    if (!seen.insert(problem).second) continue;
    const auto found = by_problem.find(problem);
    if (found == by_problem.end()) {
      collector.sources.missing.push_back({problem, "no record"});
    } else {
      add_all(std::move(found->second), collector);
    }
  }
}

Result<void> add_path(const fs::path& path, const ReportInputs& inputs, const Catalog& catalog,
                      Collector& collector) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    add_all(contents_of(path, {}, collector.sources.defects), collector);
    return {};
  }
  KW_ASSIGN(const InputFile file, InputFile::open(path));
  KW_ASSIGN(const std::string begin, file.read(0, 1));
  if (begin.starts_with(kCacheFile)) return collector.add_record(path);
  KW_ASSIGN(const std::vector<std::string> problems,
            problems_of(path, catalog, collector.sources.defects));
  add_problems(problems, inputs, collector);
  return {};
}

}  // namespace

ReportedRecord with_trials(TuningRecord record, const std::string& file,
                           const std::filesystem::path& root) {
  ReportedRecord reported{.record = std::move(record), .trials = {}, .no_trials = {}};
  Lookup<TrialTable> trials = read_trials(file, reported.record.key, root);
  if (trials) {
    reported.trials = std::move(trials.value);
  } else if (reported.record.grade == RecordGrade::predicted) {
    reported.no_trials = "nothing was measured: the record is a prediction";
  } else if (trials.reason == MissReason::absent) {
    reported.no_trials =
        "the trials of its search were not kept: the record is of an older version, or came by "
        "a bundle";
  } else {
    reported.no_trials = concat("its trials cannot be read: ", trials.detail);
  }
  return reported;
}

Result<ReportSources> read_report_sources(const ReportInputs& inputs, const Catalog& catalog) {
  Collector collector(inputs.sku);
  if (!inputs.problems.empty()) {
    std::vector<std::string> names;
    for (const Problem& problem : inputs.problems) {
      KW_ASSIGN(names.emplace_back(), named(problem, catalog));
    }
    add_problems(names, inputs, collector);
  } else if (inputs.paths.empty()) {
    add_all(contents_of(inputs.cache, inputs.read_only_caches, collector.sources.defects),
            collector);
  }
  for (const fs::path& path : inputs.paths) {
    KW_TRY(add_path(path, inputs, catalog, collector));
  }
  return collector.read();
}

}  // namespace kernwright
