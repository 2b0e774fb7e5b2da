#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cache/entries/miss.h"
#include "cache/records/family_record.h"
#include "cache/records/override.h"
#include "cache/records/record.h"
#include "cache/records/record_head.h"
#include "cache/records/trial_table.h"
#include "support/remembered_listing.h"
#include <kernwright/result.h>

namespace kernwright {

/// A key with the folder of its files below the root of any store. Making it computes a digest, so
/// a lookup makes it once for all layers.
struct RecordPlace {
  RecordPlace(RecordKey of);

  RecordKey key;
  std::string text;    ///< of the key
  std::string folder;  ///< "v1/records/<target>/<sku>/<operation>/<key>"
};

/// Keeps tuning records with the trials of their searches, records of families, and people's
/// decisions about candidates.
/// There is one directory per key and one immutable file per run and per decision; nothing is
/// merged in place. Thread-safe, and safe against other processes on the same directory.
class RecordStore {
 public:
  explicit RecordStore(const std::filesystem::path& root);

  /// The results of `get`: the heads of all readable records of a key, the newest first; its
  /// decisions, the oldest first; and the defects of the other files.
  struct Found {
    std::vector<RecordRun> runs;
    std::vector<Override> overrides;
    std::vector<std::string> defects;
    MissReason reason = MissReason::absent;  ///< if `runs` is empty
  };
  Found get(const RecordPlace& place) const;

  /// Publishes one more run under its key, and before it, beside it, the trials that it comes from,
  /// if they are given. Errors: `io`; `invalid_argument` for a record that would not read back,
  /// which names the field.
  Result<std::filesystem::path> put(const TuningRecord& record,
                                    const TrialTable* trials = nullptr) const;

  /// Publishes the record under its key with the trials beside `file`, the run that it was read
  /// from, and then removes that, if it is a run of this store. Readers find the one or the other.
  /// Errors: see `put`.
  Result<std::filesystem::path> replace(const std::filesystem::path& file,
                                        const TuningRecord& record) const;

  /// Publishes one more record of a family under its key. Errors: `io`; `invalid_argument` for one
  /// that would not read back.
  Result<std::filesystem::path> put(const FamilyRecord& family) const;

  /// A file of a family's record.
  struct FamilyRun {
    std::filesystem::path file;
    FamilyHead head;
  };
  /// Returns the heads of all readable families of the operation, target, SKU and policy of `like`,
  /// the newest first. A folder is listed again only if it has changed.
  std::vector<FamilyRun> families(const RecordKey& like) const;

  /// Publishes one more decision under its key, numbered after those that are there. Errors: `io`.
  Result<std::filesystem::path> put(Override override) const;

  /// Returns the heads of all readable records of an operation, of every target and SKU.
  std::vector<RecordRun> heads(std::string_view operation) const;

  /// A key's folder whose name says that its problem is like the one that was asked for.
  struct Alike {
    std::string folder;
    std::vector<std::int64_t> sizes;  ///< of the open dims, as many as the name has
  };
  /// Returns the folders of the keys that have the target and SKU of `shape` and its problem's
  /// text, except for the dims that are written `?` there: "matmul m=? n=4096 k=4096 dtype=bf16".
  /// No file is read. A folder is listed again only if it has changed.
  std::vector<Alike> like(const RecordKey& shape) const;

  /// Returns the heads of the readable records in a folder that `like` found, in the order of their
  /// names.
  std::vector<RecordRun> runs(const Alike& alike, const RecordKey& shape) const;

  /// Every record file below the root, sorted by path, decoded whole or with its defect. Folders
  /// that cannot be read come before them, as `unreadable`.
  struct Listed {
    std::filesystem::path path;
    Lookup<TuningRecord> record;
  };
  std::vector<Listed> list() const;

  /// The same for the heads alone. A head is intact if only the evidence is damaged.
  struct ListedHead {
    std::filesystem::path path;
    Lookup<RecordHead> head;
  };
  std::vector<ListedHead> list_heads() const;

  /// Every file of a decision below the root, sorted by path. `list` reports folders that cannot be
  /// read.
  struct ListedOverride {
    std::filesystem::path path;
    Lookup<Override> override;
  };
  std::vector<ListedOverride> list_overrides() const;

  /// Every file of a family below the root, sorted by path. `list` reports folders that cannot be
  /// read.
  struct ListedFamily {
    std::filesystem::path path;
    Lookup<FamilyRecord> family;
  };
  std::vector<ListedFamily> list_families() const;

  /// Returns the folder of a key's files.
  std::filesystem::path folder(const RecordPlace& place) const { return root_ + place.folder; }

 private:
  std::filesystem::path records_folder() const;
  /// Returns the folder with the folders of all keys of an operation, with a slash.
  std::string operation_folder(const RecordKey& key) const;

  std::string root_;  ///< with a slash at its end, if it is not empty
  /// Listings of the folders that hold a folder for each key, which may be many.
  std::shared_ptr<RememberedListings> listings_ = std::make_shared<RememberedListings>();
};

/// Reads the whole record of a file, which belongs to the cache at `root` if that is given.
/// Reasons: see `read_entry`; `corrupt` if head and evidence differ.
Lookup<TuningRecord> read_record(const std::string& file, const std::filesystem::path& root = {});

/// Reads the whole record of a family. Reasons: as of `read_record`.
Lookup<FamilyRecord> read_family(const std::string& file, const std::filesystem::path& root = {});

/// Returns the file beside a record's that has the trials of its search. There is none if the
/// record was predicted, or is older than such files.
std::filesystem::path trials_file(const std::filesystem::path& record_file);
/// Returns the file of the record that `trials_file` maps to this file.
std::filesystem::path record_file(const std::filesystem::path& trials_file);

/// Reads the trials beside the file of a record, whose key is `key`. Reasons: see `read_entry`;
/// `key_mismatch`.
Lookup<TrialTable> read_trials(const std::filesystem::path& record_file, const RecordKey& key,
                               const std::filesystem::path& root = {});

}  // namespace kernwright
