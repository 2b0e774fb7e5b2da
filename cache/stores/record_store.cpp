#include "cache/stores/record_store.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <iterator>
#include <map>
#include <optional>
#include <sys/random.h>
#include <system_error>
#include <tuple>
#include <unistd.h>
#include <utility>

#include "cache/entries/entry_file.h"
#include "support/files.h"
#include "support/hash.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFolder = "v1/records";
constexpr std::string_view kRecord = "record";
constexpr std::string_view kRecordSuffix = ".kwr";
constexpr std::string_view kTrials = "trials";
constexpr std::string_view kTrialsSuffix = ".kwt";
constexpr std::string_view kOverride = "override";
constexpr std::string_view kOverrideSuffix = ".kwo";
constexpr std::string_view kFamily = "family";
constexpr std::string_view kFamilySuffix = ".kwf";
/// The names of the folders of families begin so. Names are cut, so a range may not be in one.
constexpr std::string_view kRanges = "ranges_";
constexpr std::size_t kSlugLength = 100;
constexpr std::size_t kDigestLength = 16;  // hex digits in the name of a key's folder

/// Returns the character in a name for a character of a key.
char plain(char c) { return is_letter(c) || is_digit(c) || c == '=' || c == '-' ? c : '_'; }

/// Returns `text` as one component of a path, for people. The digest beside it distinguishes keys.
std::string slug(std::string_view text) {
  std::string name(text.substr(0, kSlugLength));
  std::transform(name.begin(), name.end(), name.begin(), plain);
  return name.empty() ? "_" : name;
}

std::string_view shape_of(std::string_view problem) {
  return trim(problem.substr(operation_of(problem).size()));
}

/// Makes a name that no other run has: the time of publication, for the order, and 64 random bits.
std::string run_name(std::string_view suffix) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto microseconds = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  const auto seconds = static_cast<std::time_t>(microseconds / 1'000'000);
  auto random = static_cast<std::uint64_t>(now.count()) ^
                (static_cast<std::uint64_t>(::getpid()) << 32);  // if getrandom fails
  static_cast<void>(::getrandom(&random, sizeof random, GRND_NONBLOCK));
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  char time[32];
  std::strftime(time, sizeof time, "%Y%m%dT%H%M%S", &utc);
  char name[80];
  std::snprintf(name, sizeof name, "%s.%06dZ-%016llx", time,
                static_cast<int>(microseconds % 1'000'000),
                static_cast<unsigned long long>(random));
  return std::string(name).append(suffix);
}

template <typename T>
Lookup<T> corrupt(const std::string& path, std::string_view what) {
  return Lookup<T>::miss(MissReason::corrupt, concat(path, ": ", what));
}

template <typename T>
Lookup<T> misplaced(const std::string& path, const RecordKey& key) {
  return Lookup<T>::miss(MissReason::key_mismatch,
                         concat(path, ": holds the ",
                                path.ends_with(kRecordSuffix)   ? kRecord
                                : path.ends_with(kFamilySuffix) ? kFamily
                                                                : kOverride,
                                " of ", key.text()));
}

template <typename T>
Lookup<T> other_key(const std::string& path, std::string_view frame, const RecordKey& key) {
  return Lookup<T>::miss(
      MissReason::key_mismatch,
      concat(path, ": the frame's key \"", frame, "\" is not the record's, \"", key.text(), '"'));
}

/// Returns whether it is a record of format version 1, whose payload is the evidence and which has
/// no body.
bool is_plain(const EntryFile& entry) { return entry.payload.starts_with('{'); }

Lookup<RecordHead> read_head(const std::string& path, const fs::path& root) {
  const Lookup<EntryFile> entry = read_front(path, kRecord, root);
  if (!entry) return same_miss<RecordHead>(entry);
  if (is_plain(*entry.value)) {
    const Lookup<TuningRecord> record = read_record(path, root);
    if (!record) return same_miss<RecordHead>(record);
    return Lookup<RecordHead>::hit(head_of(*record.value));
  }
  Result<RecordHead> head = decode_head(entry.value->payload);
  if (!head) return corrupt<RecordHead>(path, head.error().message);
  if (head->key.text() != entry.value->key) {
    return other_key<RecordHead>(path, entry.value->key, head->key);
  }
  return Lookup<RecordHead>::hit(*std::move(head));
}

Lookup<Override> read_override(const std::string& path, const fs::path& root) {
  const Lookup<EntryFile> entry = read_entry(path, kOverride, root);
  if (!entry) return same_miss<Override>(entry);
  Result<Override> override = parse_override(entry.value->payload);
  if (!override) return corrupt<Override>(path, override.error().message);
  if (override->key.text() != entry.value->key) {
    return other_key<Override>(path, entry.value->key, override->key);
  }
  return Lookup<Override>::hit(*std::move(override));
}

Lookup<FamilyHead> read_family_head(const std::string& path, const fs::path& root) {
  const Lookup<EntryFile> entry = read_front(path, kFamily, root);
  if (!entry) return same_miss<FamilyHead>(entry);
  Result<FamilyHead> head = parse_family_head(entry.value->payload);
  if (!head) return corrupt<FamilyHead>(path, head.error().message);
  if (head->key.text() != entry.value->key) {
    return other_key<FamilyHead>(path, entry.value->key, head->key);
  }
  return Lookup<FamilyHead>::hit(*std::move(head));
}

/// Returns the numbers in `text` at the places of the `?`s in `pattern`; nullopt if the two differ
/// elsewhere. With `cut`, `text` may end early.
std::optional<std::vector<std::int64_t>> match_numbers(std::string_view text,
                                                       std::string_view pattern, bool cut = false) {
  std::vector<std::int64_t> numbers;
  std::size_t at = 0;
  for (const char c : pattern) {
    if (at >= text.size()) return cut ? std::optional(numbers) : std::nullopt;
    if (c != '?') {
      if (text[at++] != c) return std::nullopt;
      continue;
    }
    const std::size_t begin = at;
    while (at < text.size() && is_digit(text[at])) ++at;
    // Digits at the end of a cut text may continue after it.
    if (cut && at == text.size()) return numbers;
    std::int64_t number = 0;
    const char* end = text.data() + at;
    const auto [stop, error] = std::from_chars(text.data() + begin, end, number);
    if (error != std::errc() || stop != end) return std::nullopt;
    numbers.push_back(number);
  }
  if (at != text.size()) return std::nullopt;
  return numbers;
}

/// Does the same for the name of a key's folder, and a pattern of `plain` characters.
std::optional<std::vector<std::int64_t>> match_name(std::string_view name,
                                                    std::string_view pattern) {
  if (name.size() <= kDigestLength) return std::nullopt;
  name.remove_suffix(kDigestLength + 1);
  return match_numbers(name, pattern, /*cut=*/name.size() >= kSlugLength);
}

/// Returns the folders below `folder` that have the name of a file.
std::vector<fs::path> folders_like_files(const fs::path& folder, std::string_view suffix) {
  std::vector<fs::path> found;
  std::error_code error;
  const auto skip = fs::directory_options::skip_permission_denied;
  fs::recursive_directory_iterator entry(folder, skip, error), end;
  for (; !error && entry != end; entry.increment(error)) {
    std::error_code unknown;
    const bool is_folder = fs::is_directory(entry->symlink_status(unknown));
    if (is_folder && entry->path().extension() == suffix) found.push_back(entry->path());
  }
  return found;
}

/// Returns the results of `read(path)` for all files with the suffix, and a defect for each folder
/// in the place of a file. Other processes remove files meanwhile, and publish others in their
/// place, so one that is gone when it is read makes all be listed again. `below` gets the listing.
template <typename Listed, typename T, typename Read>
std::vector<Listed> listed(const fs::path& folder, const fs::path& root, std::string_view suffix,
                           const Read& read, FilesBelow& below) {
  constexpr int kMostTimes = 20;
  std::map<fs::path, Lookup<T>> known;
  bool is_gone = true;
  for (int time = 0; is_gone && time < kMostTimes; ++time) {
    std::erase_if(known, [](const auto& one) { return one.second.reason == MissReason::absent; });
    is_gone = false;
    below = files_below(folder, root);
    std::erase_if(below.files, [&](const fs::path& path) { return path.extension() != suffix; });
    for (const fs::path& path : below.files) {
      if (!known.contains(path)) known.emplace(path, read(path));
      is_gone = is_gone || known.at(path).reason == MissReason::absent;
    }
  }
  std::vector<Listed> all;
  for (const fs::path& path : folders_like_files(folder, suffix)) {
    all.push_back({path, Lookup<T>::miss(MissReason::unreadable,
                                         concat(path.native(), ": a folder, not a file"))});
  }
  for (const fs::path& path : below.files) all.push_back({path, std::move(known.at(path))});
  return all;
}

/// Does the same, and puts before them a defect for each folder that cannot be read.
template <typename Listed, typename T, typename Read>
std::vector<Listed> listed_with_folders(const fs::path& folder, const fs::path& root,
                                        std::string_view suffix, const Read& read) {
  FilesBelow below;
  std::vector<Listed> files = listed<Listed, T>(folder, root, suffix, read, below);
  std::vector<Listed> all;
  for (const FilesBelow::Unread& one : below.unread) {
    all.push_back({one.folder, Lookup<T>::miss(MissReason::unreadable, one.error.message)});
  }
  std::ranges::move(files, std::back_inserter(all));
  return all;
}

}  // namespace

RecordPlace::RecordPlace(RecordKey of)
    : key(std::move(of)),
      text(key.text()),
      folder(std::string(kFolder) + '/' + slug(key.target) + '/' + slug(key.sku) + '/' +
             slug(operation_of(key.problem)) + '/' +
             slug(concat(is_family(key) ? kRanges : "", shape_of(key.problem))) + '-' +
             digest_of(text).hex().substr(0, kDigestLength)) {}

RecordStore::RecordStore(const fs::path& root) : root_((root / "").native()) {}

fs::path RecordStore::records_folder() const { return root_ + std::string(kFolder); }

std::string RecordStore::operation_folder(const RecordKey& key) const {
  return root_ + std::string(kFolder) + '/' + slug(key.target) + '/' + slug(key.sku) + '/' +
         slug(operation_of(key.problem)) + '/';
}

RecordStore::Found RecordStore::get(const RecordPlace& place) const {
  Found found;
  const auto defect = [&found](MissReason reason, std::string detail) {
    if (found.defects.empty()) found.reason = reason;
    found.defects.push_back(std::move(detail));
  };
  const std::string folder = root_ + place.folder + '/';
  Result<std::vector<std::string>> names = read_directory(folder, root_);
  if (!names) {
    if (names.error().code != ErrorCode::not_found) {
      defect(MissReason::unreadable, names.error().message);
    }
    return found;
  }
  std::vector<std::pair<std::string, Override>> overrides;
  for (const std::string& name : *names) {
    std::string file = folder + name;
    if (name.ends_with(kRecordSuffix)) {
      Lookup<RecordHead> head = read_head(file, root_);
      if (head && head.value->key != place.key) head = misplaced<RecordHead>(file, head.value->key);
      if (head) {
        found.runs.push_back({std::move(file), *std::move(head.value)});
      } else {
        defect(head.reason, std::move(head.detail));
      }
    } else if (name.ends_with(kOverrideSuffix)) {
      Lookup<Override> override = read_override(file, root_);
      if (override && override.value->key != place.key) {
        override = misplaced<Override>(file, override.value->key);
      }
      if (override) {
        overrides.emplace_back(name, *std::move(override.value));
      } else {
        defect(override.reason, std::move(override.detail));
      }
    }
  }
  std::sort(found.runs.begin(), found.runs.end(), [](const RecordRun& a, const RecordRun& b) {
    return std::tie(a.head.created, a.file) > std::tie(b.head.created, b.file);
  });
  std::sort(overrides.begin(), overrides.end(), [](const auto& a, const auto& b) {
    return std::tie(a.second.number, a.first) < std::tie(b.second.number, b.first);
  });
  for (auto& [name, override] : overrides) found.overrides.push_back(std::move(override));
  if (!found.runs.empty()) found.reason = MissReason::none;
  return found;
}

Result<fs::path> RecordStore::put(const TuningRecord& record, const TrialTable* trials) const {
  std::string json = to_json(record);
  // A number that is not finite is written as null. Parsing the text again names the field.
  if (json.find("null") != std::string::npos) {
    const Result<TuningRecord> back = parse_record(json);
    if (!back) {
      return Error{ErrorCode::invalid_argument, "would not read back: " + back.error().message};
    }
  }
  const RecordPlace place(record.key);
  fs::path path = folder(place) / run_name(kRecordSuffix);
  if (trials != nullptr) {
    KW_TRY(publish_entry(trials_file(path), {std::string(kTrials), place.text, to_json(*trials)},
                         root_));
  }
  KW_TRY(publish_entry(
      path, {std::string(kRecord), place.text, encode_head(head_of(record)), std::move(json)},
      root_));
  return path;
}

Result<fs::path> RecordStore::replace(const fs::path& file, const TuningRecord& record) const {
  const Lookup<TrialTable> trials = read_trials(file, record.key);
  KW_ASSIGN(fs::path path, put(record, trials ? &*trials.value : nullptr));
  // The new file is named after the old one, so it comes before it if that cannot be removed.
  std::error_code ignored;
  if (file.parent_path() == path.parent_path()) {
    fs::remove(file, ignored);
    fs::remove(trials_file(file), ignored);
  }
  return path;
}

Result<fs::path> RecordStore::put(const FamilyRecord& family) const {
  std::string json = to_json(family);
  if (const Result<FamilyRecord> back = parse_family(json); !back) {
    return Error{ErrorCode::invalid_argument, "would not read back: " + back.error().message};
  }
  const RecordPlace place(family.head.key);
  fs::path path = folder(place) / run_name(kFamilySuffix);
  KW_TRY(publish_entry(
      path, {std::string(kFamily), place.text, to_json(family.head), std::move(json)}, root_));
  return path;
}

std::vector<RecordStore::FamilyRun> RecordStore::families(const RecordKey& like) const {
  std::vector<FamilyRun> runs;
  const std::string folder = operation_folder(like);
  const RememberedListings::Names names = listings_->names(folder, root_);
  for (const std::string& name : *names) {
    if (!name.starts_with(kRanges)) continue;
    const std::string of_key = folder + name + '/';
    const Result<std::vector<std::string>> files = read_directory(of_key, root_);
    if (!files) continue;
    for (const std::string& file : *files) {
      if (!file.ends_with(kFamilySuffix)) continue;
      Lookup<FamilyHead> head = read_family_head(of_key + file, root_);
      if (!head) continue;
      const RecordKey& key = head.value->key;
      if (operation_of(key.problem) == operation_of(like.problem) && key.target == like.target &&
          key.sku == like.sku && key.policy == like.policy) {
        runs.push_back({of_key + file, *std::move(head.value)});
      }
    }
  }
  std::ranges::sort(runs, [](const FamilyRun& a, const FamilyRun& b) {
    return std::tie(a.head.created, a.file) > std::tie(b.head.created, b.file);
  });
  return runs;
}

Result<fs::path> RecordStore::put(Override override) const {
  const RecordPlace place(override.key);
  override.number = 1;
  for (const Override& earlier : get(place).overrides) {
    override.number = std::max(override.number, earlier.number + 1);
  }
  fs::path path = folder(place) / run_name(kOverrideSuffix);
  KW_TRY(publish_entry(path, {std::string(kOverride), place.text, to_json(override)}, root_));
  return path;
}

std::vector<RecordRun> RecordStore::heads(std::string_view operation) const {
  std::vector<RecordRun> runs;
  const fs::path folder = records_folder();
  for (const std::string& target : list_directory(folder)) {
    for (const std::string& sku : list_directory(folder / target)) {
      for (const fs::path& file :
           files_below(folder / target / sku / slug(operation), root_).files) {
        if (file.extension() != kRecordSuffix) continue;
        if (Lookup<RecordHead> head = read_head(file, root_)) {
          runs.push_back({file, *std::move(head.value)});
        }
      }
    }
  }
  return runs;
}

std::vector<RecordStore::Alike> RecordStore::like(const RecordKey& shape) const {
  const std::string folder = operation_folder(shape);
  std::string pattern(shape_of(shape.problem));
  for (char& c : pattern) c = c == '?' ? c : plain(c);
  std::vector<Alike> alike;
  const RememberedListings::Names names = listings_->names(folder, root_);
  for (const std::string& name : *names) {
    if (auto sizes = match_name(name, pattern)) {
      alike.push_back({folder + name + '/', *std::move(sizes)});
    }
  }
  return alike;
}

std::vector<RecordRun> RecordStore::runs(const Alike& alike, const RecordKey& shape) const {
  std::vector<RecordRun> runs;
  Result<std::vector<std::string>> names = read_directory(alike.folder, root_);
  if (!names) return runs;
  std::sort(names->begin(), names->end());
  for (const std::string& name : *names) {
    if (!name.ends_with(kRecordSuffix)) continue;
    Lookup<RecordHead> head = read_head(alike.folder + name, root_);
    if (!head) continue;
    const RecordKey& key = head.value->key;
    if (key.target == shape.target && key.sku == shape.sku && key.policy == shape.policy &&
        match_numbers(key.problem, shape.problem)) {
      runs.push_back({alike.folder + name, *std::move(head.value)});
    }
  }
  return runs;
}

std::vector<RecordStore::Listed> RecordStore::list() const {
  return listed_with_folders<Listed, TuningRecord>(
      records_folder(), root_, kRecordSuffix, [this](const fs::path& path) {
        Lookup<TuningRecord> record = read_record(path, root_);
        if (!record || folder(record.value->key) == path.parent_path()) return record;
        return misplaced<TuningRecord>(path, record.value->key);
      });
}

std::vector<RecordStore::ListedHead> RecordStore::list_heads() const {
  return listed_with_folders<ListedHead, RecordHead>(
      records_folder(), root_, kRecordSuffix,
      [this](const fs::path& path) { return read_head(path, root_); });
}

std::vector<RecordStore::ListedOverride> RecordStore::list_overrides() const {
  FilesBelow below;
  const auto read = [this](const fs::path& path) {
    Lookup<Override> override = read_override(path, root_);
    if (!override || folder(override.value->key) == path.parent_path()) return override;
    return misplaced<Override>(path, override.value->key);
  };
  return listed<ListedOverride, Override>(records_folder(), root_, kOverrideSuffix, read, below);
}

std::vector<RecordStore::ListedFamily> RecordStore::list_families() const {
  FilesBelow below;
  const auto read = [this](const fs::path& path) {
    Lookup<FamilyRecord> family = read_family(path, root_);
    if (!family || folder(family.value->head.key) == path.parent_path()) return family;
    return misplaced<FamilyRecord>(path, family.value->head.key);
  };
  return listed<ListedFamily, FamilyRecord>(records_folder(), root_, kFamilySuffix, read, below);
}

Lookup<FamilyRecord> read_family(const std::string& file, const fs::path& root) {
  const Lookup<EntryFile> entry = read_entry(file, kFamily, root);
  if (!entry) return same_miss<FamilyRecord>(entry);
  Result<FamilyRecord> family = parse_family(entry.value->body);
  if (!family) return corrupt<FamilyRecord>(file, family.error().message);
  if (family->head.key.text() != entry.value->key) {
    return other_key<FamilyRecord>(file, entry.value->key, family->head.key);
  }
  const Result<FamilyHead> head = parse_family_head(entry.value->payload);
  if (!head) return corrupt<FamilyRecord>(file, head.error().message);
  if (*head != family->head) {
    return corrupt<FamilyRecord>(file, "the head does not belong to the evidence");
  }
  return Lookup<FamilyRecord>::hit(*std::move(family));
}

Lookup<TuningRecord> read_record(const std::string& file, const fs::path& root) {
  const Lookup<EntryFile> entry = read_entry(file, kRecord, root);
  if (!entry) return same_miss<TuningRecord>(entry);
  const bool plain = is_plain(*entry.value);
  Result<TuningRecord> record = parse_record(plain ? entry.value->payload : entry.value->body);
  if (!record) return corrupt<TuningRecord>(file, record.error().message);
  if (record->key.text() != entry.value->key) {
    return other_key<TuningRecord>(file, entry.value->key, record->key);
  }
  if (!plain) {
    const Result<RecordHead> head = decode_head(entry.value->payload);
    if (!head) return corrupt<TuningRecord>(file, head.error().message);
    if (*head != head_of(*record)) {
      return corrupt<TuningRecord>(file, "the head does not belong to the evidence");
    }
  }
  return Lookup<TuningRecord>::hit(*std::move(record));
}

fs::path trials_file(const fs::path& record_file) {
  fs::path file = record_file;
  return file.replace_extension(kTrialsSuffix);
}

fs::path record_file(const fs::path& trials_file) {
  fs::path file = trials_file;
  return file.replace_extension(kRecordSuffix);
}

Lookup<TrialTable> read_trials(const fs::path& record_file, const RecordKey& key,
                               const fs::path& root) {
  const std::string file = trials_file(record_file).native();
  const Lookup<EntryFile> entry = read_entry(file, kTrials, root);
  if (!entry) return same_miss<TrialTable>(entry);
  if (entry.value->key != key.text()) {
    return Lookup<TrialTable>::miss(
        MissReason::key_mismatch,
        concat(file, ": holds the trials of ", entry.value->key, ", not of ", key.text()));
  }
  Result<TrialTable> table = parse_trial_table(entry.value->payload);
  if (!table) return corrupt<TrialTable>(file, table.error().message);
  return Lookup<TrialTable>::hit(*std::move(table));
}

}  // namespace kernwright
