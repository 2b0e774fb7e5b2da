#include "cache/layers/compact.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <string>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "support/files.h"
#include "support/text.h"

namespace kernwright {
namespace {

namespace fs = std::filesystem;

using std::chrono::hours;

/// Removes files, and keeps the error of the first that could not be removed.
class Remover {
 public:
  void remove(const fs::path& file) {
    std::error_code error;
    const std::uintmax_t bytes = fs::file_size(file, error);
    // Another process may have removed it already.
    if (error == std::errc::no_such_file_or_directory || !fs::remove(file, error)) {
      if (error && error != std::errc::no_such_file_or_directory) keep(file, error);
      return;
    }
    ++removed_.files;
    removed_.bytes += static_cast<std::int64_t>(bytes);
  }

  Result<Removed> result() const {
    if (failed_.message.empty()) return removed_;
    return failed_;
  }

 private:
  void keep(const fs::path& file, const std::error_code& error) {
    if (!failed_.message.empty()) return;
    failed_ = {ErrorCode::io, concat("cannot remove ", file.native(), ": ", error.message())};
  }

  Removed removed_;
  Error failed_;
};

/// Returns the error for a file that cannot be read: it may be a record, whose winner's artifact
/// would be lost.
Error nothing_pruned(std::string_view why) {
  return {ErrorCode::corrupt,
          concat("nothing was pruned, since what is unreadable may name a winner: ", why)};
}

bool is_old(const fs::path& file, std::chrono::duration<double> age) {
  std::error_code error;
  const auto changed = fs::last_write_time(file, error);
  return !error && fs::file_time_type::clock::now() - changed > age;
}

RecordGrade grade_of(const RecordHead& head) { return head.grade; }
RecordGrade grade_of(const FamilyHead& /*head*/) { return RecordGrade::measured; }

/// Returns whether every lookup rightly puts `a` before `b`, which are two runs of one key.
template <typename Run>
bool always_before(const Run& a, const Run& b, std::string_view now) {
  if (a.head.environment != b.head.environment || a.head.created > now) return false;
  const auto age = [](const Run& run) { return std::tie(run.head.created, run.file); };
  return grade_of(a.head) <= grade_of(b.head) && a.head.trust <= b.head.trust && age(a) > age(b);
}

template <typename Run>
std::set<fs::path> superseded_runs(const std::vector<Run>& runs, std::string_view now) {
  std::map<std::string, std::vector<const Run*>> by_key;
  for (const Run& run : runs) by_key[run.head.key.text()].push_back(&run);
  std::set<fs::path> files;
  for (const auto& [key, of_key] : by_key) {
    for (const Run* run : of_key) {
      const auto before = [&](const Run* other) { return always_before(*other, *run, now); };
      if (std::ranges::any_of(of_key, before)) files.insert(run->file);
    }
  }
  return files;
}

/// Returns whether a file has the trials of a record that is not there: its writer was killed
/// before it published the record, or another process removed that.
bool is_left_over(const fs::path& file) {
  if (file != trials_file(file)) return false;
  std::error_code error;
  return !fs::exists(record_file(file), error) && !error;
}

}  // namespace

std::set<fs::path> superseded(const std::vector<RecordRun>& runs, std::string_view now) {
  return superseded_runs(runs, now);
}

std::set<fs::path> superseded(const std::vector<RecordStore::FamilyRun>& families,
                              std::string_view now) {
  return superseded_runs(families, now);
}

Result<Removed> compact(const RecordStore& records, std::string_view now) {
  std::vector<RecordRun> runs;
  for (const RecordStore::Listed& listed : records.list()) {
    if (listed.record) runs.push_back({listed.path, head_of(*listed.record.value)});
  }
  std::vector<RecordStore::FamilyRun> families;
  for (const RecordStore::ListedFamily& listed : records.list_families()) {
    if (listed.family) families.push_back({listed.path, listed.family.value->head});
  }
  Remover remover;
  for (const fs::path& file : superseded(runs, now)) {
    remover.remove(file);
    remover.remove(trials_file(file));
  }
  for (const fs::path& file : superseded(families, now)) remover.remove(file);
  return remover.result();
}

Result<Removed> prune(const TieredCache& cache, const PruneLimits& limits) {
  std::set<std::string> winners;
  std::set<fs::path> logs;  // of keys that have a record
  for (const RecordStore::ListedHead& listed : cache.records().list_heads()) {
    if (!listed.head) return nothing_pruned(listed.head.detail);
    winners.insert(listed.head.value->winner.artifact);
    logs.insert(cache.log(listed.head.value->key));
  }
  for (const RecordStore::ListedFamily& listed : cache.records().list_families()) {
    if (!listed.family) return nothing_pruned(listed.family.detail);
    const FamilyHead& head = listed.family.value->head;
    for (const FamilyKernel& kernel : head.kernels) winners.insert(kernel.artifact);
    logs.insert(cache.log(head.key));
  }
  const FilesBelow all = files_below(cache.root() / "v1", cache.root());
  if (!all.unread.empty()) return nothing_pruned(all.unread.front().error.message);
  struct Candidate {
    fs::file_time_type published;
    fs::path file;
    std::int64_t bytes = 0;
  };
  std::vector<Candidate> candidates;
  std::int64_t total = 0;
  for (const std::string& digest : cache.artifacts().list()) {
    const fs::path file = cache.artifacts().path(digest);
    std::error_code error;
    const auto bytes = static_cast<std::int64_t>(fs::file_size(file, error));
    if (error) continue;
    const auto published = fs::last_write_time(file, error);
    if (error) continue;
    total += bytes;
    if (!winners.contains(digest)) candidates.push_back({published, file, bytes});
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return std::tie(a.published, a.file) < std::tie(b.published, b.file);
  });
  Remover remover;
  for (const Candidate& candidate : candidates) {
    const bool aged = limits.days > 0 && is_old(candidate.file, hours(24) * limits.days);
    if (!aged && total <= limits.bytes) continue;
    remover.remove(candidate.file);
    total -= candidate.bytes;
  }
  for (const fs::path& file : all.files) {
    if ((file.extension() == ".tmp" || is_left_over(file)) && is_old(file, hours(1))) {
      remover.remove(file);
    }
  }
  for (const fs::path& file : files_below(cache.logs(), cache.root()).files) {
    if (!logs.contains(file) && is_old(file, hours(1))) remover.remove(file);
  }
  return remover.result();
}

}  // namespace kernwright
