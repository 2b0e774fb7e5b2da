#include "service/report/report_sources.h"

#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "cache/layers/tiered_cache.h"
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
    const Lookup<TuningRecord> record = read_record(file.native());
    if (!record)
      return Error{ErrorCode::corrupt, concat(to_string(record.reason), ": ", record.detail)};
    add({{file.native(), head_of(*record.value)}, {}});
    return {};
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
  std::map<std::string, std::size_t> place_;  ///< of a key in `best_`
};

/// Returns all records of a cache, with the records of the bundle that is installed below it.
std::vector<Located> records_of(const fs::path& root, const std::vector<fs::path>& further,
                                std::vector<std::string>& defects) {
  std::vector<Located> all;
  const TieredCache cache(root, further);
  for (const fs::path& layer : cache.roots()) {
    for (RecordStore::ListedHead& listed : RecordStore(layer).list_heads()) {
      if (listed.head) {
        all.push_back({{listed.path.native(), *std::move(listed.head.value)}, layer});
      } else {
        defects.push_back(concat(to_string(listed.head.reason), ": ", listed.head.detail));
      }
    }
  }
  return all;
}

/// Returns the normalised problems of a worklist. Errors: from reading the file; the error of the
/// first entry that no operation accepts, with its place.
Result<std::vector<Problem>> problems_of(const fs::path& file, const Catalog& catalog,
                                         std::vector<std::string>& defects) {
  std::size_t unread = 0;
  KW_ASSIGN(const std::vector<WorklistEntry> entries, read_worklist(file, &unread));
  if (unread > 0) defects.push_back(lines_left_out(unread, file));
  std::vector<Problem> problems;
  for (const WorklistEntry& entry : entries) {
    const Result<BoundProblem> bound = catalog.bind(entry.problem);
    if (!bound) {
      return Error{bound.error().code,
                   concat(file.native(), ":", entry.line, ": ", bound.error().message)};
    }
    problems.push_back(bound->problem());
  }
  return problems;
}

/// Adds the cache's records of the problems, and names the problems that it has none of.
void add_problems(const std::vector<Problem>& problems, const ReportInputs& inputs,
                  Collector& collector) {
  std::map<std::string, std::vector<Located>> by_problem;
  for (Located& located :
       records_of(inputs.cache, inputs.read_only_caches, collector.sources.defects)) {
    if (!inputs.sku.empty() && located.run.head.key.sku != inputs.sku) continue;
    by_problem[located.run.head.key.problem].push_back(std::move(located));
  }
  std::set<std::string> seen;
  for (const Problem& problem : problems) {
    const std::string text = problem.text();
    if (!seen.insert(text).second) continue;
    const auto found = by_problem.find(text);
    if (found == by_problem.end()) {
      collector.sources.missing.push_back({text, "no record"});
      continue;
    }
    for (const Located& located : found->second) collector.add(located);
  }
}

Result<void> add_path(const fs::path& path, const ReportInputs& inputs, const Catalog& catalog,
                      Collector& collector) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    for (Located& located : records_of(path, {}, collector.sources.defects)) {
      collector.add(std::move(located));
    }
    return {};
  }
  KW_ASSIGN(const InputFile file, InputFile::open(path));
  KW_ASSIGN(const std::string begin, file.read(0, 1));
  if (begin.starts_with(kCacheFile)) return collector.add_record(path);
  KW_ASSIGN(const std::vector<Problem> problems,
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
    add_problems(inputs.problems, inputs, collector);
  } else if (inputs.paths.empty()) {
    for (Located& located :
         records_of(inputs.cache, inputs.read_only_caches, collector.sources.defects)) {
      collector.add(std::move(located));
    }
  }
  for (const fs::path& path : inputs.paths) {
    KW_TRY(add_path(path, inputs, catalog, collector));
  }
  return collector.read();
}

}  // namespace kernwright
