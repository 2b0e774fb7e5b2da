#include "cache/tiered_cache.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <pwd.h>
#include <system_error>
#include <tuple>
#include <unistd.h>
#include <utility>

#include "support/files.h"

namespace kernwright {
namespace {

namespace fs = std::filesystem;

/// The variable's value as a path, empty where it is unset.
fs::path path_in(const char* variable) {
  const char* value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

fs::path home() {
  if (fs::path path = path_in("HOME"); path.is_absolute()) return path;
  std::array<char, 4096> buffer;
  passwd entry{};
  passwd* found = nullptr;
  ::getpwuid_r(::getuid(), &entry, buffer.data(), buffer.size(), &found);
  return found == nullptr ? fs::path() : fs::path(found->pw_dir);
}

/// Marks the directory as ours, and as one that backups skip. It serves people and tools, not
/// lookups, so a failure does not matter.
void mark(const fs::path& root) {
  const std::pair<const char*, const char*> files[] = {
      {"FORMAT", "kernwright cache, layout v1\n"},
      {"CACHEDIR.TAG",
       "Signature: 8a477f597d28d172789f06886806bc55\n"
       "# This directory holds what kernwright can make again. See https://bford.info/cachedir/\n"},
  };
  for (const auto& [name, text] : files) {
    std::error_code error;
    if (!fs::exists(root / name, error) && !error) {
      static_cast<void>(publish_file(root / name, text));
    }
  }
}

/// How well a record fits, had it been measured, and why that is not `exact`: of several reasons
/// the one that weighs most.
std::pair<Match, MissReason> fit(const TuningRecord& record, const TieredCache::Now& now,
                                 const std::string& template_digest) {
  const RecordEnvironment& then = record.environment;
  if (template_digest.empty()) return {Match::none, MissReason::template_missing};
  if (then.template_digest != template_digest) return {Match::seed, MissReason::template_changed};
  if (!now.compiler.empty() && then.compiler != now.compiler) {
    return {Match::seed, MissReason::other_compiler};
  }
  // No driver had a part in a prediction.
  const bool measured = record.grade == RecordGrade::measured;
  if (measured && !now.driver.empty() && then.driver != now.driver) {
    return {Match::recheck, MissReason::other_driver};
  }
  if (then.kernwright != now.kernwright) return {Match::recheck, MissReason::other_kernwright};
  return {Match::exact, MissReason::none};
}

/// Whether the record's own bits are what would run: a seed's have to be made anew, and its
/// measurements are of other code.
bool measured_this_code(Match fit) { return fit == Match::exact || fit == Match::recheck; }

/// Keeps the first reason that says more than `absent`.
void keep_first(MissReason& reason, MissReason other) {
  if (reason == MissReason::absent) reason = other;
}

}  // namespace

fs::path default_cache_root() {
  if (fs::path path = path_in("KERNWRIGHT_CACHE"); !path.empty()) return path;
  // The XDG specification: a path that is not absolute is to be ignored.
  if (fs::path path = path_in("XDG_CACHE_HOME"); path.is_absolute()) return path / "kernwright";
  if (fs::path path = home(); !path.empty()) return path / ".cache" / "kernwright";
  return "/dev/null/kernwright";
}

TieredCache::TieredCache(fs::path user_root, const std::vector<fs::path>& read_only_roots)
    : root_(std::move(user_root)) {
  records_.emplace_back(root_);
  artifacts_.emplace_back(root_);
  for (const fs::path& root : read_only_roots) {
    records_.emplace_back(root);
    artifacts_.emplace_back(root);
  }
}

std::vector<GradedRecord> TieredCache::lookup(const RecordKey& key, const Now& now,
                                              const TemplateDigest& template_digest,
                                              MissReason& reason) const {
  struct Candidate {
    Match fit;             // its match, had it been measured
    std::size_t position;  // by layer, and within a layer newest first
    GradedRecord graded;
  };
  std::vector<Candidate> candidates;
  reason = MissReason::absent;
  for (const RecordStore& store : records_) {
    RecordStore::Found found = store.get(key);
    if (found.records.empty()) keep_first(reason, found.reason);
    for (TuningRecord& record : found.records) {
      const auto [match, why] = fit(record, now, template_digest(record.winner.kernel_template));
      if (match == Match::none) {
        keep_first(reason, why);
        continue;
      }
      const Match served = record.grade == RecordGrade::predicted ? Match::predicted : match;
      candidates.push_back({match, candidates.size(), {std::move(record), served, why}});
    }
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    const auto rank = [](const Candidate& c) {
      const TuningRecord& record = c.graded.record;
      return std::tuple(record.grade, !measured_this_code(c.fit), record.trust, c.fit, c.position);
    };
    return rank(a) < rank(b);
  });
  std::vector<GradedRecord> graded;
  graded.reserve(candidates.size());
  for (Candidate& candidate : candidates) graded.push_back(std::move(candidate.graded));
  if (!graded.empty()) reason = MissReason::none;
  return graded;
}

Lookup<CompiledKernel> TieredCache::artifact(std::string_view digest_hex) const {
  Lookup<CompiledKernel> first;
  for (const ArtifactStore& store : artifacts_) {
    Lookup<CompiledKernel> found = store.get(digest_hex);
    if (found) return found;
    if (first.reason == MissReason::absent) first = std::move(found);
  }
  return first;
}

Result<void> TieredCache::put_artifact(std::string_view digest_hex,
                                       const CompiledKernel& kernel) const {
  mark(root_);
  return artifacts().put(digest_hex, kernel);
}

Result<fs::path> TieredCache::put_record(const TuningRecord& record) const {
  mark(root_);
  return records().put(record);
}

}  // namespace kernwright
