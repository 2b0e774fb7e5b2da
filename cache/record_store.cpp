#include "cache/record_store.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <sys/random.h>
#include <system_error>
#include <tuple>
#include <unistd.h>
#include <utility>

#include "cache/entry_file.h"
#include "support/files.h"
#include "support/hash.h"
#include "support/text.h"

namespace kernwright {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kKind = "record";
constexpr std::string_view kSuffix = ".kwr";

/// `text` as one name of a path, for people: what tells keys apart is the digest beside it.
std::string slug(std::string_view text) {
  constexpr std::size_t kMaxLength = 100;
  std::string name(text.substr(0, kMaxLength));
  for (char& c : name) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '=' || c == '-';
    if (!plain) c = '_';
  }
  return name.empty() ? "_" : name;
}

fs::path records_folder(const fs::path& root) { return root / "v1" / "records"; }

fs::path key_folder(const fs::path& root, const RecordKey& key) {
  const std::string_view problem = key.problem;
  const std::size_t space = std::min(problem.find(' '), problem.size());
  const std::string_view shape = trim(problem.substr(space));
  const std::string digest = digest_of(key.text()).hex().substr(0, 16);
  return records_folder(root) / slug(key.target) / slug(key.sku) / slug(problem.substr(0, space)) /
         concat(slug(shape), '-', digest);
}

/// A name no other run has: the time of publication for order, 64 random bits for uniqueness.
std::string run_name() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto microseconds = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  const auto seconds = static_cast<std::time_t>(microseconds / 1'000'000);
  auto random = static_cast<std::uint64_t>(now.count()) ^
                (static_cast<std::uint64_t>(::getpid()) << 32);  // where getrandom fails
  static_cast<void>(::getrandom(&random, sizeof random, GRND_NONBLOCK));
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  char time[32];
  std::strftime(time, sizeof time, "%Y%m%dT%H%M%S", &utc);
  char name[80];
  std::snprintf(name, sizeof name, "%s.%06dZ-%016llx", time,
                static_cast<int>(microseconds % 1'000'000),
                static_cast<unsigned long long>(random));
  return concat(name, kSuffix);
}

Lookup<TuningRecord> read_record(const fs::path& path) {
  using Found = Lookup<TuningRecord>;
  const Lookup<EntryFile> entry = read_entry(path, kKind);
  if (!entry) return same_miss<TuningRecord>(entry);
  Result<TuningRecord> record = parse_record(entry.value->payload);
  if (!record) {
    return Found::miss(MissReason::corrupt, concat(path.native(), ": ", record.error().message));
  }
  if (record->key.text() != entry.value->key) {
    return Found::miss(MissReason::key_mismatch,
                       concat(path.native(), ": the frame's key \"", entry.value->key,
                              "\" is not the record's, \"", record->key.text(), '"'));
  }
  return Found::hit(*std::move(record));
}

Lookup<TuningRecord> misplaced(const fs::path& path, const RecordKey& key) {
  return Lookup<TuningRecord>::miss(MissReason::key_mismatch,
                                    concat(path.native(), ": holds the record of ", key.text()));
}

}  // namespace

RecordStore::RecordStore(fs::path root) : root_(std::move(root)) {}

RecordStore::Found RecordStore::get(const RecordKey& key) const {
  Found found;
  const auto defect = [&found](MissReason reason, std::string detail) {
    if (found.defects.empty()) found.reason = reason;
    found.defects.push_back(std::move(detail));
  };
  const fs::path folder = key_folder(root_, key);
  std::vector<std::pair<std::string, TuningRecord>> runs;
  std::error_code error;
  for (fs::directory_iterator file(folder, error); !error && file != fs::directory_iterator();
       file.increment(error)) {
    if (file->path().extension() != kSuffix) continue;
    Lookup<TuningRecord> record = read_record(file->path());
    if (record && record.value->key != key) record = misplaced(file->path(), record.value->key);
    if (record) {
      runs.emplace_back(file->path().filename().native(), *std::move(record.value));
    } else {
      defect(record.reason, std::move(record.detail));
    }
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    defect(MissReason::unreadable, concat(folder.native(), ": ", error.message()));
  }
  std::sort(runs.begin(), runs.end(), [](const auto& a, const auto& b) {
    return std::tie(a.second.created, a.first) > std::tie(b.second.created, b.first);
  });
  for (auto& run : runs) found.records.push_back(std::move(run.second));
  if (!found.records.empty()) found.reason = MissReason::none;
  return found;
}

Result<fs::path> RecordStore::put(const TuningRecord& record) const {
  std::string json = to_json(record);
  if (const Result<TuningRecord> back = parse_record(json); !back) {
    return Error{ErrorCode::invalid_argument, "would not read back: " + back.error().message};
  }
  fs::path path = key_folder(root_, record.key) / run_name();
  const Result<void> published =
      publish_file(path, encode_entry({std::string(kKind), record.key.text(), std::move(json)}));
  if (!published) return published.error();
  return path;
}

std::vector<RecordStore::Listed> RecordStore::list() const {
  std::vector<Listed> listed;
  std::error_code error;
  const auto skip = fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator file(records_folder(root_), skip, error);
       !error && file != fs::recursive_directory_iterator(); file.increment(error)) {
    const fs::path& path = file->path();
    if (path.extension() != kSuffix) continue;
    Lookup<TuningRecord> record = read_record(path);
    if (record && key_folder(root_, record.value->key) != path.parent_path()) {
      record = misplaced(path, record.value->key);
    }
    listed.push_back({path, std::move(record)});
  }
  std::sort(listed.begin(), listed.end(),
            [](const Listed& a, const Listed& b) { return a.path < b.path; });
  return listed;
}

}  // namespace kernwright
