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

/// Returns whether a file has the trials of a record that is not there: its writer was killed
/// before it published the record, or another process removed that.
bool is_left_over(const fs::path& file) {
  if (file != trials_file(file)) return false;
  std::error_code error;
  return !fs::exists(record_file(file), error) && !error;
}

}  // namespace

bool always_before(const RecordRun& a, const RecordRun& b, std::string_view now) {
  if (a.head.environment != b.head.environment || a.head.created > now) return false;
  const auto newer = [](const RecordRun& run) { return std::tie(run.head.created, run.file); };
  return a.head.grade <= b.head.grade && a.head.trust <= b.head.trust && newer(a) > newer(b);
}

Result<Removed> compact(const RecordStore& records, std::string_view now) {
  std::map<std::string, std::vector<RecordRun>> by_key;
  for (RecordStore::Listed& listed : records.list()) {
    if (!listed.record) continue;
    by_key[listed.record.value->key.text()].push_back(
        {std::move(listed.path), head_of(*listed.record.value)});
  }
  Remover remover;
  for (const auto& [key, runs] : by_key) {
    for (const RecordRun& run : runs) {
      const bool superseded = std::any_of(runs.begin(), runs.end(), [&](const RecordRun& other) {
        return always_before(other, run, now);
      });
      if (!superseded) continue;
      remover.remove(run.file);
      remover.remove(trials_file(run.file));
    }
  }
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
